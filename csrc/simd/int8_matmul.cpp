// Products of quantised activations with packed panels (foreword/panel.h defines their arithmetic, to the bit).
//
// A lane is an output: weights come sixteen outputs by four inputs to a register, and a token's four activations are
// broadcast. Four-bit weights are taken apart in registers, each for all tokens of a tile, which costs no more than
// keeping them as bytes would: so prefill and decode read the same panels.
#include "kernels.h"
#include "vec.h"

namespace foreword::FOREWORD_ISA {

#if defined(__AVX2__)

namespace {

// Tokens in a tile: as many as leave the inner loop in registers.
#if defined(__AVX512VNNI__)
constexpr size_t kTokenTile = 6;
#elif defined(__AVX512F__)
constexpr size_t kTokenTile = 4;
#else
constexpr size_t kTokenTile = 2;
#endif
constexpr size_t kColumnRegs = kPanelColumns / kWidth;
constexpr size_t kFourBytes = kPanelColumns * 4;  // of four inputs of all columns, at a byte each

// From so many tokens on, a panel's arithmetic takes longer than its loading, and asking for it ahead pays. With fewer,
// memory is the limit: the hardware's own prefetchers get more out of it when they are left alone.
constexpr size_t kPrefetchTokens = 8;
constexpr size_t kRecordsAhead = 8;  // 10 KB of four-bit weights

typedef uint16_t WordReg __attribute__((vector_size(kWidth * 4)));

FOREWORD_INLINE IntReg load_ints(const void* p) {
  IntReg v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
FOREWORD_INLINE IntReg splat_int(int32_t x) { return x - IntReg{}; }

// Asks for what will be read soon; it may lie behind the last panel.
FOREWORD_INLINE void prefetch(const uint8_t* p, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(p + at);
}

FOREWORD_INLINE IntReg low_halves(IntReg bytes) { return bytes & 0x0f0f0f0f; }
FOREWORD_INLINE IntReg high_halves(IntReg bytes) {
  return low_halves(reinterpret_cast<IntReg>(reinterpret_cast<WordReg>(bytes) >> 4));
}

FOREWORD_INLINE IntReg four_activations(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return splat_int(four);
}

FOREWORD_INLINE Reg to_float(IntReg v) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(v));
#else
  return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(v));
#endif
}

FOREWORD_INLINE Reg load_scales(const uint8_t* scales, size_t reg, bool wide) {
  if (wide) return load_reg(reinterpret_cast<const float*>(scales) + reg * kWidth);
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales) + reg));
#else
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales) + reg));
#endif
}

// Calls body(four, weights) for each four inputs of a group, with kRegs registers of bytes from column register `first`.
template <size_t kBits, size_t kRegs, typename Body>
FOREWORD_INLINE void each_four(const uint8_t* weights, size_t first, Body body) {
  constexpr size_t kStored = kGroup / 4 * kBits / 8;
#pragma GCC unroll 8
  for (size_t four = 0; four < kStored; ++four) {
    IntReg bytes[kRegs];
    for (size_t j = 0; j < kRegs; ++j) bytes[j] = load_ints(weights + four * kFourBytes + (first + j) * kWidth * 4);
    if constexpr (kBits == 8) {
      body(four, bytes);
    } else {
      IntReg halves[kRegs];
      for (size_t j = 0; j < kRegs; ++j) halves[j] = low_halves(bytes[j]);
      body(four, halves);
      for (size_t j = 0; j < kRegs; ++j) halves[j] = high_halves(bytes[j]);
      body(four + kStored, halves);
    }
  }
}

template <size_t T>
using Dots = IntReg[T][kColumnRegs];

#if defined(__AVX512VNNI__)

// dots += the group's weights · activations.
template <size_t kBits, size_t T>
FOREWORD_INLINE void add_group(const uint8_t* weights, const int8_t* x, size_t stride, Dots<T>& dots) {
  each_four<kBits, kColumnRegs>(weights, 0, [&](size_t four, const IntReg(&bytes)[kColumnRegs]) FOREWORD_INLINE_LAMBDA {
    for (size_t t = 0; t < T; ++t) {
      const IntReg token = four_activations(x + t * stride + four * 4);
      for (size_t j = 0; j < kColumnRegs; ++j) {
        dots[t][j] = reinterpret_cast<IntReg>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(dots[t][j]),
                                                                  reinterpret_cast<__m512i>(bytes[j]),
                                                                  reinterpret_cast<__m512i>(token)));
      }
    }
  });
}

#else

#if defined(__AVX512F__)
FOREWORD_INLINE IntReg multiply_pairs(IntReg bytes, IntReg token) {
  return reinterpret_cast<IntReg>(
      _mm512_maddubs_epi16(reinterpret_cast<__m512i>(bytes), reinterpret_cast<__m512i>(token)));
}
FOREWORD_INLINE IntReg add_words(IntReg a, IntReg b) {
  return reinterpret_cast<IntReg>(_mm512_add_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
FOREWORD_INLINE IntReg add_pairs(IntReg words) {
  return reinterpret_cast<IntReg>(_mm512_madd_epi16(reinterpret_cast<__m512i>(words), _mm512_set1_epi16(1)));
}
#else
FOREWORD_INLINE IntReg multiply_pairs(IntReg bytes, IntReg token) {
  return reinterpret_cast<IntReg>(
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(bytes), reinterpret_cast<__m256i>(token)));
}
FOREWORD_INLINE IntReg add_words(IntReg a, IntReg b) {
  return reinterpret_cast<IntReg>(_mm256_add_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
FOREWORD_INLINE IntReg add_pairs(IntReg words) {
  return reinterpret_cast<IntReg>(_mm256_madd_epi16(reinterpret_cast<__m256i>(words), _mm256_set1_epi16(1)));
}
#endif

// Makes the compiler compute v here. GCC 12 puts all products of a group before all sums otherwise, and spills them.
FOREWORD_INLINE void settle(IntReg& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#else
  asm("" : "+x"(v));
#endif
}

constexpr size_t kPair = 2;  // column registers at a time: their sums and a tile's tokens fit sixteen registers

// Without dot products of bytes: pairs of products of four bits by eight, eight of which a 16-bit sum holds
// (8 * 2 * 15 * 127 < 2^15). Bytes are two such halves.
template <size_t kBits, size_t T>
FOREWORD_INLINE void add_group(const uint8_t* weights, const int8_t* x, size_t stride, Dots<T>& dots) {
#pragma GCC unroll 1
  for (size_t first = 0; first < kColumnRegs; first += kPair) {
    const auto add = [&](auto half, int shift) FOREWORD_INLINE_LAMBDA {
      IntReg words[T][kPair] = {};
      each_four<kBits, kPair>(weights, first, [&](size_t four, const IntReg(&bytes)[kPair]) FOREWORD_INLINE_LAMBDA {
        IntReg halves[kPair];
        for (size_t j = 0; j < kPair; ++j) halves[j] = half(bytes[j]);
        for (size_t t = 0; t < T; ++t) {
          const IntReg token = four_activations(x + t * stride + four * 4);
          for (size_t j = 0; j < kPair; ++j) {
            words[t][j] = add_words(words[t][j], multiply_pairs(halves[j], token));
            settle(words[t][j]);
          }
        }
      });
      for (size_t t = 0; t < T; ++t) {
        for (size_t j = 0; j < kPair; ++j) dots[t][first + j] += add_pairs(words[t][j]) << shift;
      }
    };
    if constexpr (kBits == 4) {
      add([](IntReg bytes) FOREWORD_INLINE_LAMBDA { return bytes; }, 0);
    } else {
      add([](IntReg bytes) FOREWORD_INLINE_LAMBDA { return low_halves(bytes); }, 0);
      add([](IntReg bytes) FOREWORD_INLINE_LAMBDA { return high_halves(bytes); }, 4);
    }
  }
}

#endif

FOREWORD_INLINE void write_row(float* to, const Reg (&sums)[kColumnRegs], bool accumulate) {
  for (size_t j = 0; j < kColumnRegs; ++j) {
    float* at = to + j * kWidth;
    store_reg(at, accumulate ? load_reg(at) + sums[j] : sums[j]);
  }
}

// Unrolled, or the sums would go over the stack to be counted there.
template <size_t T>
FOREWORD_INLINE void write(const Int8MatmulArgs& a, size_t token, const Reg (&sums)[T][kColumnRegs]) {
  float* out = a.out + token * a.out_stride;
  if (a.columns == kPanelColumns) {
#pragma GCC unroll 8
    for (size_t t = 0; t < T; ++t) write_row(out + t * a.out_stride, sums[t], a.accumulate);
    return;
  }
#pragma GCC unroll 8
  for (size_t t = 0; t < T; ++t, out += a.out_stride) {
    float row[kPanelColumns];
    std::memcpy(row, out, a.columns * sizeof(float));
    write_row(row, sums[t], a.accumulate);
    std::memcpy(out, row, a.columns * sizeof(float));
  }
}

// T tokens by a panel.
template <size_t kBits, bool kMinima, size_t T>
[[gnu::noinline]] void tile(const Int8MatmulArgs& a, size_t token) {
  const int8_t* x = a.x + token * a.x_stride;
  const GroupScale* groups = a.x_groups + token * a.groups;
  const uint8_t* record = a.panel;
  const size_t record_bytes = a.format.record_bytes();
  const bool fetches = token == 0 && a.tokens >= kPrefetchTokens;  // the other tiles find the panel in the cache
  Reg sums[T][kColumnRegs] = {};
  for (size_t g = 0; g < a.groups; ++g, record += record_bytes, x += kGroup, ++groups) {
    if (fetches) prefetch(record + kRecordsAhead * record_bytes, record_bytes);
    Dots<T> dots;
    for (size_t t = 0; t < T; ++t) {
      const IntReg start = kMinima ? IntReg{} : splat_int(-a.format.zero * groups[t * a.groups].sum);
      for (size_t j = 0; j < kColumnRegs; ++j) dots[t][j] = start;
    }
    add_group<kBits, T>(record, x, a.x_stride, dots);

    const uint8_t* scales = record + kPanelColumns * kGroup * kBits / 8;
    for (size_t j = 0; j < kColumnRegs; ++j) {
      const Reg d = load_scales(scales, j, a.format.wide);
      for (size_t t = 0; t < T; ++t) {
        sums[t][j] = fma(to_float(dots[t][j]) * groups[t * a.groups].scale, d, sums[t][j]);
      }
      if constexpr (!kMinima) continue;
      const Reg m = load_scales(scales + a.format.scale_bytes(), j, a.format.wide);
      for (size_t t = 0; t < T; ++t) {
        sums[t][j] = fma(groups[t * a.groups].scaled_sum - Reg{}, m, sums[t][j]);
      }
    }
  }
  write<T>(a, token, sums);
}

// All tokens in tiles of T, the rest in smaller ones.
template <size_t kBits, bool kMinima, size_t T = kTokenTile>
void panel(const Int8MatmulArgs& a, size_t token = 0) {
  for (; token + T <= a.tokens; token += T) tile<kBits, kMinima, T>(a, token);
  if constexpr (T > 1) panel<kBits, kMinima, T - 1>(a, token);
}

}  // namespace

void int8_matmul(const Int8MatmulArgs& a) {
  if (a.format.bits == 4) return a.format.minima ? panel<4, true>(a) : panel<4, false>(a);
  return a.format.minima ? panel<8, true>(a) : panel<8, false>(a);
}

#else

void int8_matmul(const Int8MatmulArgs& a) { kReferenceKernels.int8_matmul(a); }

#endif

}  // namespace foreword::FOREWORD_ISA
