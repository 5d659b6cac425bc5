// Float to half float. (The other way is in blocks.h.) Static for the same reason as there.
#pragma once

#include <bit>
#include <cstdint>

namespace foreword {

// The nearest half float, ties to even; the largest one for what is larger.
static inline uint16_t float_to_half(float x) {
  constexpr uint32_t kInfinity = 0x7f800000, kLargest = 0x477fe000;  // as floats; the latter is 65504
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000;
  uint32_t size = bits & 0x7fffffff;
  if (size > kInfinity) return static_cast<uint16_t>(sign | 0x7e00);  // not a number
  if (size > kLargest) size = kLargest;
  // A subnormal half counts steps of 2^-24: so does the last place of a float that 0.5 was added to.
  if (size < 0x38800000) {
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) & 0x7fff));
  }
  size += 0xfff + (size >> 13 & 1);                                     // to the nearest of 10 bits
  return static_cast<uint16_t>(sign | ((size - 0x38000000) >> 13));  // exponents start at -15, not -127
}

}  // namespace foreword
