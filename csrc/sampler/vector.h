// Four floats at a time, in the vectors that every target has (SSE2, NEON): this folder is built without ISA flags.
#pragma once

#include <array>
#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

namespace foreword::sampler {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Float4 splat(float x) { return Float4{x, x, x, x}; }

// Where `a` is NaN the answer is `b`.
inline Float4 max(Float4 a, Float4 b) { return a > b ? a : b; }

inline bool any(Int4 mask) {
  const auto halves = std::bit_cast<std::array<uint64_t, 2>>(mask);
  return (halves[0] | halves[1]) != 0;
}

// e^x for x <= 0, within 2 ulp; 0 where it would be below the smallest normal number, and for NaN. With
// x = n·ln 2 + r, |r| <= ln 2 / 2: e^r by its Taylor polynomial, 2^n by the exponent bits. No library call and no fused
// operation, so that the bits are the same on every machine.
inline Float4 exp_nonpositive(Float4 x) {
  const Float4 lowest = splat(-87.3f);  // 2^-126 is e^-87.34
  const Float4 z = max(x, lowest);
  const Float4 magic = splat(0x1.8p23f);  // adding it leaves the nearest whole number in the low bits
  const Float4 shifted = z * 1.44269504f + magic;
  const Float4 n = shifted - magic;
  const Float4 r = (z - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts: n times the first is exact
  Float4 e = splat(1.0f / 5040);
  e = e * r + 1.0f / 720;
  e = e * r + 1.0f / 120;
  e = e * r + 1.0f / 24;
  e = e * r + 1.0f / 6;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const Int4 exponent = std::bit_cast<Int4>(shifted) << 23;  // shifts out all but n
  const Float4 result = std::bit_cast<Float4>(std::bit_cast<Int4>(e) + exponent);
  return x > lowest ? result : splat(0.0f);
}

// The unnormalised probability of a logit: e^((logit - max) / temperature), so 1 for the highest. +inf counts as the
// largest finite float; NaN and -inf weigh 0.
struct Weigh {
  Weigh(float max_logit, float temperature)
      : max(max_logit > FLT_MAX ? FLT_MAX : max_logit),
        // Bounded, because 0 · inf is NaN; a temperature near the bound is greedy already.
        inverse_temperature(temperature > 1e-30f ? 1.0f / temperature : 1e30f) {}

  Float4 operator()(Float4 logits) const {
    const Float4 finite = logits > FLT_MAX ? splat(FLT_MAX) : logits;
    return exp_nonpositive((finite - max) * inverse_temperature);
  }

  float max;
  float inverse_temperature;
};

// 16 neighbours of a row.
struct Block {
  Float4 part[4];

  float operator[](size_t lane) const { return part[lane / 4][lane % 4]; }
};
inline constexpr size_t kBlock = 16;

// Calls `f(index of the first, block)` for all of `row`. The last block is filled up with NaN: no maximum, above no
// bound, of no weight.
template <class F>
inline void for_each_block(std::span<const float> row, F&& f) {
  Block block;
  size_t i = 0;
  for (; i + kBlock <= row.size(); i += kBlock) {
    std::memcpy(&block, row.data() + i, sizeof block);
    f(i, block);
  }
  if (i < row.size()) {
    for (Float4& part : block.part) part = splat(std::numeric_limits<float>::quiet_NaN());
    std::memcpy(&block, row.data() + i, (row.size() - i) * sizeof(float));
    f(i, block);
  }
}

}  // namespace foreword::sampler
