// One token's key and value into their block.
#include "foreword/half.h"
#include "integers.h"
#include "kernels.h"

namespace foreword::FOREWORD_ISA {

#if defined(__AVX2__)

namespace {

void write_float32(const WriteKVArgs& w) {
  auto* keys = reinterpret_cast<float*>(w.block);
  for (size_t d = 0; d < w.layout.head_dim; ++d) keys[d * kBlockSize + w.slot] = w.key[d];
  std::memcpy(w.block + w.layout.values + w.slot * w.layout.width * sizeof(float), w.value,
              w.layout.head_dim * sizeof(float));
}

// float_to_half, eight at a time.
FOREWORD_INLINE void to_halves(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  const __m256 most = _mm256_set1_ps(65504.0f), least = _mm256_set1_ps(-65504.0f);
  for (; i + 8 <= n; i += 8) {
    const __m256 in = _mm256_max_ps(least, _mm256_min_ps(most, _mm256_loadu_ps(x + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(in, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) out[i] = float_to_half(x[i]);
}

constexpr size_t kAtOnce = 64;  // channels

void write_float16(const WriteKVArgs& w) {
  const KVLayout& layout = w.layout;
  auto* keys = reinterpret_cast<uint16_t*>(w.block) + w.slot;
  auto* values = reinterpret_cast<uint16_t*>(w.block + layout.values) + w.slot * layout.width;
  for (size_t first = 0; first < layout.head_dim; first += kAtOnce) {
    const size_t n = layout.head_dim - first < kAtOnce ? layout.head_dim - first : kAtOnce;
    uint16_t halves[kAtOnce];
    to_halves(w.key + first, n, halves);
    for (size_t d = 0; d < n; ++d) keys[(first + d) * kBlockSize] = halves[d];
    to_halves(w.value + first, n, values + first);
  }
}

void write_int8(const WriteKVArgs& w) {
  const KVLayout& layout = w.layout;
  int8_t bytes[kMostHeadDim];
  float scales[2];
  scales[0] = quantize_mixed(w.key, layout.head_dim, bytes);
  for (size_t d = 0; d < layout.head_dim; d += 4) {
    uint32_t four;
    std::memcpy(&four, bytes + d, sizeof four);
    four ^= 0x80808080;  // 128 added to each
    std::memcpy(w.block + (d * kBlockSize + w.slot * 4), &four, sizeof four);
  }
  scales[1] = quantize_head(w.value, layout.head_dim, bytes);
  uint8_t* values = w.block + layout.values + w.slot / 4 * 4 * layout.width + w.slot % 4;
  for (size_t d = 0; d < layout.head_dim; ++d) values[4 * d] = static_cast<uint8_t>(bytes[d]);
  for (size_t i = 0; i < 2; ++i) {
    std::memcpy(w.block + layout.scales + (i * kBlockSize + w.slot) * sizeof(float), scales + i, sizeof(float));
  }
}

}  // namespace

void write_kv(const WriteKVArgs& w) {
  switch (w.layout.dtype) {
    case KVDType::kFloat32: return write_float32(w);
    case KVDType::kFloat16: return write_float16(w);
    case KVDType::kInt8: return write_int8(w);
  }
}

#else

void write_kv(const WriteKVArgs& w) { kReferenceKernels.write_kv(w); }

#endif

}  // namespace foreword::FOREWORD_ISA
