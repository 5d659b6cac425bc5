// Stored weights to float, one weight at a time: the truth that faster kernels are compared with.
// Multiplication and addition stay separate (this folder is built with -ffp-contract=off), in the
// order of the `gguf` package, so that every bit agrees with it.
#include "foreword/blocks.h"
#include "foreword/dtype.h"

#include <cstring>

namespace foreword {
namespace {

// Formats of 32: the low nibbles are weights 0-15, the high ones weights 16-31.
int nibble(const uint8_t* qs, size_t i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }
int fifth_bit(const uint8_t* qh, size_t i) { return (qh[i / 8] >> i % 8 & 1) << 4; }

void unpack(const BlockQ4_0& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b.qs, i) - 8);
}

void unpack(const BlockQ4_1& b, float* y) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b.qs, i)) + m;
}

void unpack(const BlockQ5_0& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t i = 0; i < 32; ++i) {
    y[i] = d * static_cast<float>((nibble(b.qs, i) | fifth_bit(b.qh, i)) - 16);
  }
}

void unpack(const BlockQ5_1& b, float* y) {
  const float d = half_to_float(b.d), m = half_to_float(b.m);
  for (size_t i = 0; i < 32; ++i) {
    y[i] = d * static_cast<float>(nibble(b.qs, i) | fifth_bit(b.qh, i)) + m;
  }
}

void unpack(const BlockQ8_0& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

void unpack(const BlockIQ4_NL& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(kIQ4Values[nibble(b.qs, i)]);
}

// Q2_K and Q3_K: 32 bytes hold 128 weights, two bits of each of their four runs of 32.
int two_bits(const uint8_t* qs, size_t i) {
  return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void unpack(const BlockQ2_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g] & 15);
    const float min = dmin * static_cast<float>(b.scales[g] >> 4);
    for (size_t i = g * 16; i < g * 16 + 16; ++i) {
      y[i] = scale * static_cast<float>(two_bits(b.qs, i)) - min;
    }
  }
}

void unpack(const BlockQ3_K& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(k3_scale(b.scales, g));
    for (size_t i = g * 16; i < g * 16 + 16; ++i) {
      const int high = b.qh[i % 32] >> (i / 32) & 1;
      y[i] = scale * static_cast<float>(two_bits(b.qs, i) - (high ? 0 : 4));
    }
  }
}

// Q4_K and Q5_K: 32 bytes hold 64 weights, the low nibbles first.
int k_nibble(const uint8_t* qs, size_t g, size_t i) {
  return qs[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
}

void unpack(const BlockQ4_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (size_t g = 0; g < 8; ++g) {
    const ScaleMin s = k_scale_min(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (size_t i = 0; i < 32; ++i) {
      y[g * 32 + i] = scale * static_cast<float>(k_nibble(b.qs, g, i)) - min;
    }
  }
}

void unpack(const BlockQ5_K& b, float* y) {
  const float d = half_to_float(b.d), dmin = half_to_float(b.dmin);
  for (size_t g = 0; g < 8; ++g) {
    const ScaleMin s = k_scale_min(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (size_t i = 0; i < 32; ++i) {
      const int q = k_nibble(b.qs, g, i) | (b.qh[i] >> g & 1) << 4;
      y[g * 32 + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void unpack(const BlockQ6_K& b, float* y) {
  const float d = half_to_float(b.d);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g]);
    for (size_t i = g * 16; i < g * 16 + 16; ++i) {
      const int low = b.ql[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
      const int high = b.qh[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      y[i] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

template <typename Block>
void unpack_row(const void* src, float* dst, size_t n) {
  const auto* blocks = static_cast<const Block*>(src);
  for (size_t i = 0; i < n / Block::kElements; ++i) unpack(blocks[i], dst + i * Block::kElements);
}

}  // namespace

void dequantize_row(DType type, const void* src, float* dst, size_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  switch (type) {
    case DType::F32: std::memcpy(dst, src, n * sizeof(float)); return;
    case DType::F16:
      for (size_t i = 0; i < n; ++i) dst[i] = half_to_float(bytes + 2 * i);
      return;
    case DType::BF16:
      for (size_t i = 0; i < n; ++i) dst[i] = bfloat_to_float(bytes + 2 * i);
      return;
    case DType::Q4_0: return unpack_row<BlockQ4_0>(src, dst, n);
    case DType::Q4_1: return unpack_row<BlockQ4_1>(src, dst, n);
    case DType::Q5_0: return unpack_row<BlockQ5_0>(src, dst, n);
    case DType::Q5_1: return unpack_row<BlockQ5_1>(src, dst, n);
    case DType::Q8_0: return unpack_row<BlockQ8_0>(src, dst, n);
    case DType::Q2_K: return unpack_row<BlockQ2_K>(src, dst, n);
    case DType::Q3_K: return unpack_row<BlockQ3_K>(src, dst, n);
    case DType::Q4_K: return unpack_row<BlockQ4_K>(src, dst, n);
    case DType::Q5_K: return unpack_row<BlockQ5_K>(src, dst, n);
    case DType::Q6_K: return unpack_row<BlockQ6_K>(src, dst, n);
    case DType::IQ4_NL: return unpack_row<BlockIQ4_NL>(src, dst, n);
  }
}

}  // namespace foreword
