// Activations to eight bits, in groups. The twin's operations in the twin's order, so the same bits.
#include "kernels.h"
#include "vec.h"

namespace foreword::FOREWORD_ISA {

#if defined(__AVX2__)

namespace {

constexpr size_t kGroupVecs = kGroup / kLanes;

FOREWORD_INLINE IntReg magnitude_bits(Reg x) { return reinterpret_cast<IntReg>(x) & 0x7fffffff; }
FOREWORD_INLINE IntReg larger(IntReg a, IntReg b) { return a > b ? a : b; }

// The largest and the sum of a register's integers.
FOREWORD_INLINE int32_t largest(IntReg v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epi32(reinterpret_cast<__m512i>(v));
#else
  const auto wide = reinterpret_cast<__m256i>(v);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
#endif
}
FOREWORD_INLINE int32_t total(IntReg v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32(reinterpret_cast<__m512i>(v));
#else
  const auto wide = reinterpret_cast<__m256i>(v);
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
#endif
}

// The nearest integers, ties to even.
FOREWORD_INLINE IntReg nearest(Reg x) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntReg>(_mm512_cvtps_epi32(x));
#else
  return reinterpret_cast<IntReg>(_mm256_cvtps_epi32(x));
#endif
}
FOREWORD_INLINE void store_bytes(int8_t* to, IntReg v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
#else
  const auto wide = reinterpret_cast<__m256i>(v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
#endif
}

FOREWORD_INLINE void quantize_group(const float* x, int8_t* values, GroupScale& group) {
  constexpr size_t kRegs = kGroupVecs * kParts;
  Reg in[kRegs];
  IntReg bits{};
  for (size_t i = 0; i < kRegs; ++i) {
    in[i] = load_reg(x + i * kWidth);
    bits = larger(bits, magnitude_bits(in[i]));
  }
  const int32_t highest_bits = largest(bits);
  float highest;
  std::memcpy(&highest, &highest_bits, sizeof highest);
  constexpr int32_t kInfinity = 0x7f800000;
  if (highest < kLeastActivation || highest_bits >= kInfinity) {
    std::memset(values, 0, kGroup);
    group.scale = highest < kLeastActivation ? 0.0f : highest / 127.0f;
    group.sum = 0;
    group.scaled_sum = 0.0f * group.scale;
    return;
  }
  const Reg up = 127.0f / highest - Reg{};
  IntReg sum{};
  for (size_t i = 0; i < kRegs; ++i) {
    const IntReg rounded = nearest(in[i] * up);
    store_bytes(values + i * kWidth, rounded);
    sum += rounded;
  }
  group.scale = highest / 127.0f;
  group.sum = total(sum);
  group.scaled_sum = static_cast<float>(group.sum) * group.scale;
}

}  // namespace

void quantize(const float* x, size_t n, int8_t* values, GroupScale* groups) {
  size_t first = 0;
  for (; first + kGroup <= n; first += kGroup) quantize_group(x + first, values + first, *groups++);
  if (first == n) return;
  float last[kGroup] = {};
  std::memcpy(last, x + first, (n - first) * sizeof(float));
  quantize_group(last, values + first, *groups);
}

#else

void quantize(const float* x, size_t n, int8_t* values, GroupScale* groups) {
  kReferenceKernels.quantize(x, n, values, groups);
}

#endif

}  // namespace foreword::FOREWORD_ISA
