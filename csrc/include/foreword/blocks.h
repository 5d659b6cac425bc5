// How GGUF packs weights: one struct for each block format, laid out as in the file.
//
// Byte arrays only, so that a block may stand at any address. `d` is the block's scale and `m` or `dmin`
// its minimum, both half floats; `q*` are the quantised weights. The formats are ggml's.
//
// Functions are static: csrc/simd is built for several instruction sets, and a shared copy of an inline function could be
// the one with instructions that the machine lacks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace foreword {

struct BlockQ4_0 {
  static constexpr size_t kElements = 32;
  uint8_t d[2], qs[16];
};

struct BlockQ4_1 {
  static constexpr size_t kElements = 32;
  uint8_t d[2], m[2], qs[16];
};

struct BlockQ5_0 {
  static constexpr size_t kElements = 32;
  uint8_t d[2], qh[4], qs[16];
};

struct BlockQ5_1 {
  static constexpr size_t kElements = 32;
  uint8_t d[2], m[2], qh[4], qs[16];
};

struct BlockQ8_0 {
  static constexpr size_t kElements = 32;
  uint8_t d[2];
  int8_t qs[32];
};

struct BlockIQ4_NL {
  static constexpr size_t kElements = 32;
  uint8_t d[2], qs[16];
};

struct BlockQ2_K {
  static constexpr size_t kElements = 256;
  uint8_t scales[16], qs[64], d[2], dmin[2];
};

struct BlockQ3_K {
  static constexpr size_t kElements = 256;
  uint8_t qh[32], qs[64], scales[12], d[2];
};

struct BlockQ4_K {
  static constexpr size_t kElements = 256;
  uint8_t d[2], dmin[2], scales[12], qs[128];
};

struct BlockQ5_K {
  static constexpr size_t kElements = 256;
  uint8_t d[2], dmin[2], scales[12], qh[32], qs[128];
};

struct BlockQ6_K {
  static constexpr size_t kElements = 256;
  uint8_t ql[128], qh[64];
  int8_t scales[16];
  uint8_t d[2];
};

// The values that IQ4_NL's four bits stand for.
inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// An IEEE half float as float, exactly; subnormals too.
static inline float half_to_float(const uint8_t bytes[2]) {
  const uint32_t h = bytes[0] | uint32_t{bytes[1]} << 8;
  const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

static inline float bfloat_to_float(const uint8_t bytes[2]) {
  return std::bit_cast<float>(uint32_t{bytes[0]} << 16 | uint32_t{bytes[1]} << 24);
}

// Q4_K and Q5_K: the 6-bit scale and minimum of group `g` (of 8).
struct ScaleMin {
  uint8_t scale, min;
};
static inline ScaleMin k_scale_min(const uint8_t scales[12], size_t g) {
  if (g < 4) return {static_cast<uint8_t>(scales[g] & 63), static_cast<uint8_t>(scales[g + 4] & 63)};
  const uint8_t low = scales[g + 4];
  return {static_cast<uint8_t>((low & 15) | (scales[g - 4] >> 6 << 4)),
          static_cast<uint8_t>((low >> 4) | (scales[g] >> 6 << 4))};
}

// Q3_K: the 6-bit signed scale of group `g` (of 16).
static inline int k3_scale(const uint8_t scales[12], size_t g) {
  const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
  const int high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

}  // namespace foreword
