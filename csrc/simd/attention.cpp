// Attention over keys and values in floats.
#include "attention.h"

#include "foreword/blocks.h"
#include "kernels.h"

namespace foreword::FOREWORD_ISA {
namespace {

constexpr float kNothingSeen = -1e30f;  // a running maximum that is finite, so that differences are never NaN

struct Float32 {
  static constexpr size_t kBytes = 4;
  FOREWORD_INLINE static Vec load(const uint8_t* from) {
    return FOREWORD_ISA::load(reinterpret_cast<const float*>(from));
  }
};

struct Float16 {
  static constexpr size_t kBytes = 2;
  FOREWORD_INLINE static Vec load(const uint8_t* from) {
    Vec v;
#if defined(__AVX512F__)
    v.part[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
    FOREWORD_EACH_PART {
      v.part[p] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * kWidth * p)));
    }
#else
    FOREWORD_EACH_PART {
      for (size_t i = 0; i < kWidth; ++i) v.part[p][i] = half_to_float(from + 2 * (kWidth * p + i));
    }
#endif
    return v;
  }
};

template <typename Element>
struct FloatKeys {
  const AttentionArgs& a;
  const Rows rows;
  alignas(64) float scores[kTogether * kStepKeys] = {};
  float weights[kTogether][kStepKeys];
  float shrink[kTogether];

  FloatKeys(const AttentionArgs& args, float* rest) : a(args), rows(start_rows(args, kNothingSeen, rest)) {}

  // By dot products over channels in ascending order.
  template <size_t R, size_t B>
  FOREWORD_INLINE void score(const Blocks& blocks, size_t block, size_t row, float* out) {
    const float* q[R];
    for (size_t r = 0; r < R; ++r) {
      q[r] = a.q + (row + r) / a.group * a.q_stride + (row + r) % a.group * a.layout.head_dim;
    }
    Vec dots[R][B];
    for (auto& own : dots) {
      for (Vec& v : own) v = splat(0.0f);
    }
    for (size_t d = 0; d < a.layout.head_dim; ++d) {
      Vec key[B];
      for (size_t b = 0; b < B; ++b) {
        key[b] = Element::load(blocks.at[block + b] + d * kBlockSize * Element::kBytes);
      }
      for (size_t r = 0; r < R; ++r) {
        const Vec query = splat(q[r][d]);
        for (size_t b = 0; b < B; ++b) dots[r][b] = fma(query, key[b], dots[r][b]);
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t b = 0; b < B; ++b) store(out + r * kStepKeys + (block + b) * kBlockSize, dots[r][b] * splat(a.scale));
    }
  }

  FOREWORD_INLINE void soften(const Blocks&, size_t row, size_t count) {
    const Vec before = load(rows.highest + row);
    const Vec now = max(before, for_rows(count, kMax, [&](size_t r) FOREWORD_INLINE_LAMBDA {
                            return highest_of(scores + r * kStepKeys);
                          }));
    const Vec shrunk = exp(before - now);
    store(rows.highest + row, now);
    store(shrink, shrunk);
    const Vec sums = for_rows(count, kAdd, [&](size_t r) FOREWORD_INLINE_LAMBDA {
      Vec powers[kStepBlocks];
      for (size_t b = 0; b < kStepBlocks; ++b) {
        powers[b] = exp(load(scores + r * kStepKeys + b * kBlockSize) - splat(rows.highest[row + r]));
        store(weights[r] + b * kBlockSize, powers[b]);
      }
      return (powers[0] + powers[1]) + (powers[2] + powers[3]);
    });
    store(rows.total + row, load(rows.total + row) * shrunk + sums);
  }

  // Tokens in ascending order.
  template <size_t R, size_t C>
  FOREWORD_INLINE void gather(const Blocks& blocks, size_t row, size_t slot, size_t channel) {
    Vec sums[R][C];
    for (size_t r = 0; r < R; ++r) {
      for (size_t c = 0; c < C; ++c) {
        sums[r][c] = load(rows.sums + (row + r) * rows.width + channel + c * kLanes) * splat(shrink[slot + r]);
      }
    }
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      const uint8_t* values = blocks.at[b] + a.layout.values + channel * Element::kBytes;
      for (size_t t = 0; t < kBlockSize; ++t) {
        Vec value[C];
        for (size_t c = 0; c < C; ++c) {
          value[c] = Element::load(values + (t * rows.width + c * kLanes) * Element::kBytes);
        }
        for (size_t r = 0; r < R; ++r) {
          const Vec weight = splat(weights[slot + r][b * kBlockSize + t]);
          for (size_t c = 0; c < C; ++c) sums[r][c] = fma(weight, value[c], sums[r][c]);
        }
      }
    }
    for (size_t r = 0; r < R; ++r) {
      for (size_t c = 0; c < C; ++c) {
        store(rows.sums + (row + r) * rows.width + channel + c * kLanes, sums[r][c]);
      }
    }
  }
};

template <typename Element>
void attend_in_float(const AttentionArgs& a) {
  FloatKeys<Element> keys(a, nullptr);
  attend(a, keys, keys.rows);
}

}  // namespace

void attention(const AttentionArgs& a) {
  switch (a.layout.dtype) {
    case KVDType::kFloat32: return attend_in_float<Float32>(a);
    case KVDType::kFloat16: return attend_in_float<Float16>(a);
    case KVDType::kInt8: return attention_int8(a);
  }
}

}  // namespace foreword::FOREWORD_ISA
