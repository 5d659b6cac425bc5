// Stored weights to float, sixteen at a time. The same products and sums as dequantize_row, so the same bits.
#include "kernels.h"
#include "vec.h"

#include "foreword/blocks.h"

namespace foreword::FOREWORD_ISA {
namespace {

typedef uint8_t Bytes __attribute__((vector_size(16)));

FOREWORD_INLINE Bytes load_bytes(const uint8_t* p) {
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Sixteen small integers as floats.
FOREWORD_INLINE Vec to_float(Bytes bytes) {
#if defined(__AVX512F__)
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(reinterpret_cast<__m128i>(bytes)))};
#elif defined(__AVX2__)
  const auto v = reinterpret_cast<__m128i>(bytes);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(v, v)))};
#else
  float floats[kLanes];
  for (size_t i = 0; i < kLanes; ++i) floats[i] = static_cast<float>(static_cast<int32_t>(bytes[i]));
  return load(floats);
#endif
}

// Signed bytes: shifted up by 128, which a float holds exactly, and back.
FOREWORD_INLINE Vec signed_to_float(const int8_t* p) {
  return to_float(load_bytes(reinterpret_cast<const uint8_t*>(p)) ^ 0x80) - splat(128.0f);
}

FOREWORD_INLINE float half(const uint8_t bytes[2]) {
#if defined(__F16C__)
  return _cvtsh_ss(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
#else
  return half_to_float(bytes);
#endif
}

// Sixteen bits, the lowest first, as bytes of 16 or 0: the fifth bit of Q5 weights.
FOREWORD_INLINE Bytes fifth_bits(const uint8_t bits[2]) {
  constexpr Bytes kBit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8_t a = bits[0], b = bits[1];
  const Bytes spread = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
  return reinterpret_cast<Bytes>((spread & kBit) == kBit) & 16;
}

FOREWORD_INLINE void unpack(const BlockQ4_0& b, float* y) {
  const Vec d = splat(half(b.d)), bias = splat(8.0f);
  const Bytes qs = load_bytes(b.qs);
  store(y, d * (to_float(qs & 15) - bias));
  store(y + 16, d * (to_float(qs >> 4) - bias));
}

FOREWORD_INLINE void unpack(const BlockQ4_1& b, float* y) {
  const Vec d = splat(half(b.d)), m = splat(half(b.m));
  const Bytes qs = load_bytes(b.qs);
  store(y, d * to_float(qs & 15) + m);
  store(y + 16, d * to_float(qs >> 4) + m);
}

FOREWORD_INLINE void unpack(const BlockQ5_0& b, float* y) {
  const Vec d = splat(half(b.d)), bias = splat(16.0f);
  const Bytes qs = load_bytes(b.qs);
  store(y, d * (to_float((qs & 15) | fifth_bits(b.qh)) - bias));
  store(y + 16, d * (to_float((qs >> 4) | fifth_bits(b.qh + 2)) - bias));
}

FOREWORD_INLINE void unpack(const BlockQ8_0& b, float* y) {
  const Vec d = splat(half(b.d));
  store(y, d * signed_to_float(b.qs));
  store(y + 16, d * signed_to_float(b.qs + 16));
}

FOREWORD_INLINE void unpack(const BlockQ4_K& b, float* y) {
  const float d = half(b.d), dmin = half(b.dmin);
  for (size_t g = 0; g < 8; ++g) {
    const ScaleMin s = k_scale_min(b.scales, g);
    const Vec scale = splat(d * static_cast<float>(s.scale)), min = splat(dmin * static_cast<float>(s.min));
    for (size_t i = 0; i < 32; i += kLanes) {
      const Bytes qs = load_bytes(b.qs + g / 2 * 32 + i) >> (g % 2 * 4) & 15;
      store(y + g * 32 + i, scale * to_float(qs) - min);
    }
  }
}

FOREWORD_INLINE void unpack(const BlockQ6_K& b, float* y) {
  const float d = half(b.d);
  for (size_t g = 0; g < 16; ++g) {
    const size_t i = g * 16 % 128, low_at = g / 8 * 64 + i % 64, high_at = g / 8 * 32 + i % 32;
    const Bytes low = load_bytes(b.ql + low_at) >> (i / 64 * 4) & 15;
    const Bytes high = load_bytes(b.qh + high_at) >> (i / 32 * 2) & 3;
    const Vec scale = splat(d * static_cast<float>(b.scales[g]));
    store(y + g * 16, scale * (to_float(low | high << 4) - splat(32.0f)));
  }
}

template <typename Block>
void unpack_row(const void* src, float* dst, size_t n) {
  const auto* blocks = static_cast<const Block*>(src);
  for (size_t i = 0; i < n / Block::kElements; ++i) unpack(blocks[i], dst + i * Block::kElements);
}

#if defined(__F16C__)
void unpack_halves(const void* src, float* dst, size_t n) {
  const auto* halves = static_cast<const uint8_t*>(src);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i))));
  }
  for (; i < n; ++i) dst[i] = half(halves + 2 * i);
}
#endif

}  // namespace

void dequantize(DType type, const void* src, float* dst, size_t n) {
  switch (type) {
    case DType::Q4_0: return unpack_row<BlockQ4_0>(src, dst, n);
    case DType::Q4_1: return unpack_row<BlockQ4_1>(src, dst, n);
    case DType::Q5_0: return unpack_row<BlockQ5_0>(src, dst, n);
    case DType::Q8_0: return unpack_row<BlockQ8_0>(src, dst, n);
    case DType::Q4_K: return unpack_row<BlockQ4_K>(src, dst, n);
    case DType::Q6_K: return unpack_row<BlockQ6_K>(src, dst, n);
#if defined(__F16C__)
    case DType::F16: return unpack_halves(src, dst, n);
#endif
    default: return dequantize_row(type, src, dst, n);  // F32 and BF16 are plain moves; the rest are rare
  }
}

}  // namespace foreword::FOREWORD_ISA
