// Sixteen floats at a time, in whatever registers the instruction set has. Everything here is inlined into the
// namespace of the instruction set that it is built for.
//
// No expression is contracted (this folder is built with -ffp-contract=off): a fused multiply-add stands where `fma` is
// called and nowhere else, so that every path through a kernel rounds alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "foreword/kernels.h"

#define FOREWORD_INLINE [[gnu::always_inline]] inline
#define FOREWORD_INLINE_LAMBDA __attribute__((always_inline))

namespace foreword::FOREWORD_ISA {

#if defined(__AVX512F__)
inline constexpr size_t kWidth = 16;
#elif defined(__AVX2__)
inline constexpr size_t kWidth = 8;
#else
inline constexpr size_t kWidth = 4;
#endif
inline constexpr size_t kParts = kLanes / kWidth;  // registers that hold kLanes floats

typedef float Reg __attribute__((vector_size(kWidth * 4)));  // one register
typedef int32_t IntReg __attribute__((vector_size(kWidth * 4)));
typedef float Quad __attribute__((vector_size(16)));

FOREWORD_INLINE Reg load_reg(const float* p) {
  Reg v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
FOREWORD_INLINE void store_reg(float* p, Reg v) { std::memcpy(p, &v, sizeof v); }

// a * b + c, rounded once where the instruction set can, twice where it cannot.
FOREWORD_INLINE Reg fma(Reg a, Reg b, Reg c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

#if defined(__AVX2__)
FOREWORD_INLINE Quad fma(Quad a, Quad b, Quad c) { return _mm_fmadd_ps(a, b, c); }
#endif

FOREWORD_INLINE float max(float a, float b) { return a > b ? a : b; }
FOREWORD_INLINE Reg max(Reg a, Reg b) { return a > b ? a : b; }
FOREWORD_INLINE Reg min(Reg a, Reg b) { return a < b ? a : b; }

// body(0) to body(N - 1), written out: only so does the compiler keep small arrays in registers.
template <size_t N, typename Body>
FOREWORD_INLINE void each(Body body) {
  [&]<size_t... i>(std::index_sequence<i...>) FOREWORD_INLINE_LAMBDA { (body(i), ...); }(std::make_index_sequence<N>{});
}

// Sixteen lanes.
struct Vec {
  Reg part[kParts];
};

#define FOREWORD_EACH_PART _Pragma("GCC unroll 4") for (size_t p = 0; p < kParts; ++p)

FOREWORD_INLINE Vec load(const float* from) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = load_reg(from + p * kWidth);
  return v;
}
FOREWORD_INLINE void store(float* to, const Vec& v) {
  FOREWORD_EACH_PART store_reg(to + p * kWidth, v.part[p]);
}
FOREWORD_INLINE Vec splat(float x) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = x - Reg{};
  return v;
}
FOREWORD_INLINE Vec operator+(const Vec& a, const Vec& b) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = a.part[p] + b.part[p];
  return v;
}
FOREWORD_INLINE Vec operator-(const Vec& a, const Vec& b) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = a.part[p] - b.part[p];
  return v;
}
FOREWORD_INLINE Vec operator*(const Vec& a, const Vec& b) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = a.part[p] * b.part[p];
  return v;
}
FOREWORD_INLINE Vec operator/(const Vec& a, const Vec& b) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = a.part[p] / b.part[p];
  return v;
}
FOREWORD_INLINE Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = fma(a.part[p], b.part[p], c.part[p]);
  return v;
}
FOREWORD_INLINE Vec max(const Vec& a, const Vec& b) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = max(a.part[p], b.part[p]);
  return v;
}

// What folds are made with.
inline constexpr auto kAdd = [](auto a, auto b) { return a + b; };
inline constexpr auto kMax = [](auto a, auto b) { return max(a, b); };

// Folds sixteen lanes to four with `op`: lane i with i + 8, then i + 4.
template <typename Op>
FOREWORD_INLINE Quad fold(const Vec& v, Op op) {
#if defined(__AVX512F__)
  const __m256 half = op(_mm512_castps512_ps256(v.part[0]), _mm512_extractf32x8_ps(v.part[0], 1));
#elif defined(__AVX2__)
  const __m256 half = op(v.part[0], v.part[1]);
#endif
#if defined(__AVX2__)
  return op(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#else
  return op(op(v.part[0], v.part[2]), op(v.part[1], v.part[3]));
#endif
}

// The sum of sixteen lanes, added as a halving tree: i with i + 8, i + 4, i + 2, i + 1.
FOREWORD_INLINE float sum(const Vec& v) {
  const Quad q = fold(v, kAdd);
  return (q[0] + q[2]) + (q[1] + q[3]);
}

// Four vectors, each folded to one lane by the same tree.
template <typename Op>
FOREWORD_INLINE Quad fold4(const Vec& a, const Vec& b, const Vec& c, const Vec& d, Op op) {
  const Quad qa = fold(a, op), qb = fold(b, op), qc = fold(c, op), qd = fold(d, op);
  const Quad ab = op(Quad{qa[0], qb[0], qa[1], qb[1]}, Quad{qa[2], qb[2], qa[3], qb[3]});
  const Quad cd = op(Quad{qc[0], qd[0], qc[1], qd[1]}, Quad{qc[2], qd[2], qc[3], qd[3]});
  return op(Quad{ab[0], ab[1], cd[0], cd[1]}, Quad{ab[2], ab[3], cd[2], cd[3]});
}

// Four such sums at once.
FOREWORD_INLINE Quad sum4(const Vec& a, const Vec& b, const Vec& c, const Vec& d) {
  return fold4(a, b, c, d, kAdd);
}

// Four vectors folded to four lanes each, side by side in the order of their arguments: `fold`'s first two steps.
template <typename Op>
FOREWORD_INLINE Vec fold_to_quarters(const Vec& a, const Vec& b, const Vec& c, const Vec& d, Op op) {
  Vec v;
#if defined(__AVX512F__)
  const auto pair = [&](Reg x, Reg y) -> Reg {
    return op(Reg(_mm512_shuffle_f32x4(x, y, 0x44)), Reg(_mm512_shuffle_f32x4(x, y, 0xee)));
  };
  const Reg ab = pair(a.part[0], b.part[0]), cd = pair(c.part[0], d.part[0]);
  v.part[0] = op(Reg(_mm512_shuffle_f32x4(ab, cd, 0x88)), Reg(_mm512_shuffle_f32x4(ab, cd, 0xdd)));
#elif defined(__AVX2__)
  const auto pair = [&](const Vec& one, const Vec& other) -> Reg {
    const Reg x = op(one.part[0], one.part[1]), y = op(other.part[0], other.part[1]);
    return op(Reg(_mm256_permute2f128_ps(x, y, 0x20)), Reg(_mm256_permute2f128_ps(x, y, 0x31)));
  };
  v.part[0] = pair(a, b);
  v.part[1] = pair(c, d);
#else
  const Vec* from[kParts] = {&a, &b, &c, &d};
  FOREWORD_EACH_PART v.part[p] = fold(*from[p], op);
#endif
  return v;
}

// Sixteen vectors folded to one lane each, in order; quarters[i] holds vectors 4 i to 4 i + 3.
template <typename Op>
FOREWORD_INLINE Vec fold_quarters(const Vec (&quarters)[4], Op op) {
  Vec v;
#if defined(__AVX512F__)
  const auto pair = [&](Reg x, Reg y) -> Reg {
    return op(Reg(_mm512_shuffle_ps(x, y, 0x44)), Reg(_mm512_shuffle_ps(x, y, 0xee)));
  };
  const Reg low = pair(quarters[0].part[0], quarters[1].part[0]), high = pair(quarters[2].part[0], quarters[3].part[0]);
  const Reg columns = op(Reg(_mm512_shuffle_ps(low, high, 0x88)), Reg(_mm512_shuffle_ps(low, high, 0xdd)));
  v.part[0] = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), columns);
#elif defined(__AVX2__)
  Reg columns[2];
  FOREWORD_EACH_PART {
    const auto pair = [&](Reg x, Reg y) -> Reg {
      return op(Reg(_mm256_shuffle_ps(x, y, 0x44)), Reg(_mm256_shuffle_ps(x, y, 0xee)));
    };
    const Reg low = pair(quarters[0].part[p], quarters[1].part[p]);
    const Reg high = pair(quarters[2].part[p], quarters[3].part[p]);
    columns[p] = op(Reg(_mm256_shuffle_ps(low, high, 0x88)), Reg(_mm256_shuffle_ps(low, high, 0xdd)));
  }
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  v.part[0] = _mm256_permutevar8x32_ps(_mm256_unpacklo_ps(columns[0], columns[1]), order);
  v.part[1] = _mm256_permutevar8x32_ps(_mm256_unpackhi_ps(columns[0], columns[1]), order);
#else
  for (size_t i = 0; i < kLanes; ++i) {
    const Reg q = quarters[i / 4].part[i % 4];
    v.part[i / 4][i % 4] = op(op(q[0], q[2]), op(q[1], q[3]));
  }
#endif
  return v;
}

// e^x within 2 units in the last place; 0 below -87, finite above 88, no number for none. x = n ln 2 + r with
// |r| <= ln(2)/2, and e^r by a polynomial of degree 6 (1 + r + r² q(r), q fitted for the least relative error).
template <typename V>
FOREWORD_INLINE V exp(V x) {
  using Int = decltype(x < x);
  constexpr float kLowest = -87.0f, kHighest = 88.0f;
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693115234f, kLn2Low = 3.19461833e-5f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const V zero{}, lowest = zero + kLowest, highest = zero + kHighest;
  const V floored = x < lowest ? lowest : x, in = floored > highest ? highest : floored;
  const V rounded = fma(in, zero + kLog2E, zero + kRound);
  const V n = rounded - kRound;
  const V r = fma(n, zero - kLn2Low, fma(n, zero - kLn2High, in));
  V q = fma(zero + 1.381445094e-03f, r, zero + 8.368781768e-03f);
  q = fma(q, r, zero + 4.166839272e-02f);
  q = fma(q, r, zero + 1.666651964e-01f);
  q = fma(q, r, zero + 4.999999404e-01f);
  const V power = fma(q, r * r, r) + 1.0f;
  const Int scale = (reinterpret_cast<Int>(rounded) << 23) + 0x3f800000;  // 2^n
  return x < lowest ? zero : power * reinterpret_cast<V>(scale);
}
FOREWORD_INLINE Vec exp(const Vec& x) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = exp(x.part[p]);
  return v;
}

}  // namespace foreword::FOREWORD_ISA
