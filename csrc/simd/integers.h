// Sixteen 32-bit integers at a time: dot products of bytes, and the way from floats to bytes.
#pragma once

#include "vec.h"

#if defined(__AVX2__)

namespace foreword::FOREWORD_ISA {

struct IntVec {
  IntReg part[kParts];
};

FOREWORD_INLINE IntVec load_ints(const void* from) {
  IntVec v;
  FOREWORD_EACH_PART std::memcpy(&v.part[p], static_cast<const uint8_t*>(from) + p * sizeof(IntReg), sizeof(IntReg));
  return v;
}
FOREWORD_INLINE IntVec splat(int32_t x) {
  IntVec v;
  FOREWORD_EACH_PART v.part[p] = x - IntReg{};
  return v;
}
FOREWORD_INLINE Vec to_float(const IntVec& x) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = __builtin_convertvector(x.part[p], Reg);
  return v;
}

#if !defined(__AVX512VNNI__)

typedef int16_t ShortReg __attribute__((vector_size(kWidth * 4)));
typedef uint16_t WordReg __attribute__((vector_size(kWidth * 4)));

// Products of 16-bit integers, added by pairs.
FOREWORD_INLINE IntReg multiply_pairs(ShortReg a, ShortReg b) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntReg>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  return reinterpret_cast<IntReg>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#endif
}

#endif

// acc + the sum of four products, unsigned bytes by signed bytes, in each lane. Exact: the one instruction of AVX2 for
// this saturates, so there the bytes are widened.
FOREWORD_INLINE IntReg dot4(IntReg acc, IntReg unsigned_bytes, IntReg signed_bytes) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<IntReg>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc),
                                                      reinterpret_cast<__m512i>(unsigned_bytes),
                                                      reinterpret_cast<__m512i>(signed_bytes)));
#else
  const auto u = reinterpret_cast<WordReg>(unsigned_bytes);
  const auto s = reinterpret_cast<ShortReg>(signed_bytes);
  const IntReg even = multiply_pairs(reinterpret_cast<ShortReg>(u & 255), s << 8 >> 8);
  return acc + (even + multiply_pairs(reinterpret_cast<ShortReg>(u >> 8), s >> 8));
#endif
}
FOREWORD_INLINE IntVec dot4(const IntVec& acc, const IntVec& unsigned_bytes, const IntVec& signed_bytes) {
  IntVec v;
  FOREWORD_EACH_PART v.part[p] = dot4(acc.part[p], unsigned_bytes.part[p], signed_bytes.part[p]);
  return v;
}

// Each lane's nearest integer, ties to even; INT32_MIN for no number.
FOREWORD_INLINE IntVec nearest(const Vec& x) {
  IntVec v;
#if defined(__AVX512F__)
  v.part[0] = reinterpret_cast<IntReg>(_mm512_cvtps_epi32(x.part[0]));
#else
  FOREWORD_EACH_PART v.part[p] = reinterpret_cast<IntReg>(_mm256_cvtps_epi32(x.part[p]));
#endif
  return v;
}

// The low byte of each lane.
FOREWORD_INLINE void store_bytes(void* to, const IntVec& v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v.part[0])));
#else
  const __m256i low = _mm256_and_si256(reinterpret_cast<__m256i>(v.part[0]), _mm256_set1_epi32(255));
  const __m256i high = _mm256_and_si256(reinterpret_cast<__m256i>(v.part[1]), _mm256_set1_epi32(255));
  // Packing works within halves, so the quarters come out as 0 2 1 3.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
  _mm_storeu_si128(static_cast<__m128i*>(to),
                   _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
#endif
}

FOREWORD_INLINE void store_rounded(void* to, const Vec& x) { store_bytes(to, nearest(x)); }

// The same of four vectors, whose values lie between 0 and 255; what is no number becomes 0.
FOREWORD_INLINE void store_rounded(uint8_t* to, const Vec (&x)[4]) {
#if defined(__AVX512F__)
  const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(x[0].part[0]), _mm512_cvtps_epi32(x[1].part[0]));
  const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(x[2].part[0]), _mm512_cvtps_epi32(x[3].part[0]));
  // Packing works within quarters: each holds four values of every vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
#else
  for (size_t i = 0; i < 4; ++i) store_rounded(to + i * kLanes, x[i]);
#endif
}

// Integers in registers that pass for floats, so that they can be folded as those are.
FOREWORD_INLINE Vec as_floats(const IntVec& v) {
  Vec f;
  FOREWORD_EACH_PART f.part[p] = reinterpret_cast<Reg>(v.part[p]);
  return f;
}
template <typename Op>
FOREWORD_INLINE auto on_integers(Op op) {
  return [op](auto a, auto b) FOREWORD_INLINE_LAMBDA {
    using Integers = decltype(a < b);
    return reinterpret_cast<decltype(a)>(op(reinterpret_cast<Integers>(a), reinterpret_cast<Integers>(b)));
  };
}

// The largest of some magnitudes, as bits, and of `least`. In the order of integers no number is larger than infinity,
// so it is not lost.
FOREWORD_INLINE float largest_float(const IntVec& v, float least) {
  const Quad q = fold(as_floats(v), on_integers([](auto a, auto b) { return a > b ? a : b; }));
  int32_t bits[4], most;
  std::memcpy(bits, &q, sizeof bits);
  std::memcpy(&most, &least, sizeof most);
  for (const int32_t each : bits) most = each > most ? each : most;
  std::memcpy(&least, &most, sizeof least);
  return least;
}

// The sum of n bytes, a multiple of sixteen: what they add up to with 128 each, less that.
FOREWORD_INLINE int32_t sum_of_bytes(const int8_t* x, size_t n) {
  __m128i sums{};
  for (size_t i = 0; i < n; i += 16) {
    const __m128i bytes = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)), _mm_set1_epi8(-128));
    sums = _mm_add_epi64(sums, _mm_sad_epu8(bytes, __m128i{}));
  }
  return static_cast<int32_t>(sums[0] + sums[1]) - static_cast<int32_t>(128 * n);
}

// In each lane i without bit `half`, x[i] + x[i + half]; in lane i + half, x[i] - x[i + half].
template <size_t kHalf>
FOREWORD_INLINE Reg butterfly(Reg x) {
  IntReg partner, sign;
  for (size_t i = 0; i < kWidth; ++i) {
    partner[i] = static_cast<int32_t>(i ^ kHalf);
    sign[i] = i & kHalf ? INT32_MIN : 0;
  }
  return __builtin_shuffle(x, partner) + reinterpret_cast<Reg>(reinterpret_cast<IntReg>(x) ^ sign);
}

// int8_attention's transform of n channels, in place; x is padded to whole vectors.
FOREWORD_INLINE void mix(float* x, size_t n) {
  const size_t together = int8_attention::mixed_channels(n);
  for (size_t i = 0; i < n; i += kWidth) {
    Reg v = load_reg(x + i);
    if (together > 1) v = butterfly<1>(v);
    if (together > 2) v = butterfly<2>(v);
    if (together > 4) v = butterfly<4>(v);
    if constexpr (kWidth > 8) {
      if (together > 8) v = butterfly<8>(v);
    }
    store_reg(x + i, v);
  }
  for (size_t half = kWidth; half < together; half *= 2) {
    for (size_t i = 0; i < n; i += kWidth) {
      if (i & half) continue;
      const Reg a = load_reg(x + i), b = load_reg(x + i + half);
      store_reg(x + i, a + b);
      store_reg(x + i + half, a - b);
    }
  }
}

// x to eight bits, into round_up(n, kLanes) bytes, the rest of them zero; and what one of them is worth.
FOREWORD_INLINE float quantize_head(const float* x, size_t n, int8_t* out) {
  const size_t whole = n / kLanes * kLanes;
  float tail[kLanes] = {};
  std::memcpy(tail, x + whole, (n - whole) * sizeof(float));
  IntVec sizes = splat(int32_t{0});
  const auto widen = [&](const float* from) {
    FOREWORD_EACH_PART {
      const IntReg size = reinterpret_cast<IntReg>(load_reg(from + p * kWidth)) & 0x7fffffff;
      sizes.part[p] = size > sizes.part[p] ? size : sizes.part[p];
    }
  };
  for (size_t i = 0; i < whole; i += kLanes) widen(x + i);
  widen(tail);
  const float amax = largest_float(sizes, int8_attention::kLeastAmax);
  const Vec inverse = splat(127.0f / amax);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (size_t i = 0; i < whole; i += kLanes) store_rounded(bytes + i, load(x + i) * inverse);
  if (whole < n) store_rounded(bytes + whole, load(tail) * inverse);
  return amax / 127.0f;
}

// The same of the mixed channels.
FOREWORD_INLINE float quantize_mixed(const float* x, size_t n, int8_t* out) {
  float copy[kMostHeadDim];
  std::memcpy(copy, x, n * sizeof(float));
  for (size_t i = n; i < round_up(n, kLanes); ++i) copy[i] = 0.0f;
  mix(copy, n);
  return quantize_head(copy, n, out);
}

}  // namespace foreword::FOREWORD_ISA

#endif
