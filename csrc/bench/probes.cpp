#include "foreword/probes.h"

#include "foreword/features.h"
#include "foreword/kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foreword {
namespace {

using Clock = std::chrono::steady_clock;

// Work per second, where `work` does a little and returns how much. From when the first thread begins to when the last one
// ends: threads that ran one after the other must not count as if they had shared the memory.
double measure(unsigned threads, double seconds, const std::function<size_t(unsigned thread)>& work) {
  struct Part {
    Clock::time_point start, end;
    size_t done = 0;
  };
  std::atomic<unsigned> waiting{threads};
  std::vector<Part> parts(threads);
  const auto body = [&](unsigned thread) {
    work(thread);  // wakes the wide units up
    --waiting;
    while (waiting > 0) std::this_thread::yield();
    Part part{Clock::now(), {}, 0};
    do {
      part.done += work(thread);
      part.end = Clock::now();
    } while (part.end - part.start < std::chrono::duration<double>(seconds));
    parts[thread] = part;
  };
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& other : others) other.join();
  Part all = parts[0];
  for (unsigned thread = 1; thread < threads; ++thread) {
    all.start = std::min(all.start, parts[thread].start);
    all.end = std::max(all.end, parts[thread].end);
    all.done += parts[thread].done;
  }
  return static_cast<double>(all.done) / std::chrono::duration<double>(all.end - all.start).count();
}

#if defined(__x86_64__)

// Independent sums in flight: more than an instruction's cycles times the units that run it.
constexpr size_t kSums = 12;

// The operands pass through `asm`, so that the compiler believes they change and repeats the work.
#define FOREWORD_PROBE(name, isa, type, zero, one, per_round, step) \
  __attribute__((target(isa))) size_t name(size_t rounds) {         \
    type sums[kSums], x = one, y = one;                             \
    for (type& sum : sums) sum = zero;                              \
    for (size_t round = 0; round < rounds; ++round) {               \
      _Pragma("GCC unroll 12") for (type& sum : sums) {             \
        asm("" : "+v"(x));                                          \
        step;                                                       \
      }                                                             \
    }                                                               \
    for (type& sum : sums) asm volatile("" : : "v"(sum));           \
    return rounds * kSums * (per_round);                            \
  }

FOREWORD_PROBE(dot_avx512_vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1), 64,
               sum = _mm512_dpbusd_epi32(sum, x, y))
FOREWORD_PROBE(dot_avx512, "avx512f,avx512bw", __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1), 64,
               sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), y)))
FOREWORD_PROBE(dot_avx2, "avx2", __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1), 32,
               sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), y)))
FOREWORD_PROBE(fma_avx512, "avx512f", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1.0f), 16,
               sum = _mm512_fmadd_ps(x, y, sum))
FOREWORD_PROBE(fma_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_set1_ps(1.0f), 8,
               sum = _mm256_fmadd_ps(x, y, sum))

#undef FOREWORD_PROBE

#endif

}  // namespace

std::vector<ArithmeticProbe> arithmetic_probes() {
  std::vector<ArithmeticProbe> probes;
#if defined(__x86_64__)
  const auto add = [&](bool usable, const ArithmeticProbe& probe) {
    if (usable) probes.push_back(probe);
  };
  const bool wide = has_feature("avx512f") && has_feature("avx512bw"), narrow = has_feature("avx2") && has_feature("fma");
  add(wide && has_feature("avx512_vnni"), {Arithmetic::kInt8Dot, "avx512_vnni", dot_avx512_vnni});
  add(wide, {Arithmetic::kInt8Dot, "avx512", dot_avx512});
  add(narrow, {Arithmetic::kInt8Dot, "avx2", dot_avx2});
  add(wide && has_feature("avx512_vnni"), {Arithmetic::kFloat32Fma, "avx512_vnni", fma_avx512});
  add(wide, {Arithmetic::kFloat32Fma, "avx512", fma_avx512});
  add(narrow, {Arithmetic::kFloat32Fma, "avx2", fma_avx2});
#endif
  return probes;
}

double arithmetic_rate(const ArithmeticProbe& probe, unsigned threads, double seconds) {
  constexpr size_t kRounds = 10'000;  // some 50 us
  return measure(threads, seconds, [&](unsigned) { return probe.run(kRounds); });
}

// Huge pages where the system has them, as large arrays get: small ones cost a third of the speed.
constexpr std::align_val_t kHugePage{2 << 20};

ReadProbe::ReadProbe(size_t bytes) : bytes_(round_up(bytes, static_cast<size_t>(kHugePage))) {
  memory_.reset(static_cast<char*>(::operator new(bytes_, kHugePage)));
#if defined(__linux__)
  madvise(memory_.get(), bytes_, MADV_HUGEPAGE);
#endif
  std::memset(memory_.get(), 1, bytes_);
}

void ReadProbe::Free::operator()(char* p) const { ::operator delete(p, kHugePage); }

double ReadProbe::rate(unsigned threads, double seconds) {
  using Vector [[gnu::vector_size(16)]] = uint64_t;  // what every 64-bit processor has
  constexpr size_t kVectors = 4, kLine = kVectors * sizeof(Vector);
  constexpr size_t kStretch = 1 << 20;  // bytes between two looks at the clock
  const size_t share = bytes_ / threads / kLine * kLine;
  std::vector<size_t> offsets(threads * kLine, next_ % share);  // a cache line for each thread's own
  const double rate = measure(threads, seconds, [&](unsigned thread) {
    size_t& offset = offsets[thread * kLine];
    const char* from = memory_.get() + thread * share + offset;
    const size_t bytes = share - offset < kStretch ? share - offset : kStretch;
    Vector sums[kVectors] = {}, vector;
    for (size_t i = 0; i + kLine <= bytes; i += kLine) {
      for (size_t k = 0; k < kVectors; ++k) {
        std::memcpy(&vector, from + i + k * sizeof(Vector), sizeof(Vector));
        sums[k] += vector;
      }
    }
    asm volatile("" : : "m"(sums));
    offset = offset + bytes < share ? offset + bytes : 0;
    return bytes;
  });
  next_ = offsets[0];
  return rate;
}

}  // namespace foreword
