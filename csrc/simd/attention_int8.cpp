// Attention over eight-bit keys and values by integer dot products: the arithmetic of foreword/attention.h.
//
// Where the hardware's dot product wants one unsigned side, keys are kept with 128 added, which the sums begin by taking
// back, and weights are never negative.
#include "attention.h"
#include "integers.h"

namespace foreword::FOREWORD_ISA {

#if defined(__AVX2__)

namespace {

using namespace int8_attention;

// Weights are rounded by halves of a step.
constexpr size_t kHalves = 2, kHalfBlocks = kStepBlocks / kHalves;

// 2^x, 0 below kLowestPower.
template <typename V>
FOREWORD_INLINE V power(V x) {
  using Bits [[gnu::vector_size(sizeof(V))]] = uint32_t;  // below kLowestPower they wrap, and are not used
  const V zero{}, rounded = x + (zero + kRound), part = x - (rounded - kRound);
  V p = fma(zero + kPower[2], part, zero + kPower[1]);
  p = fma(p, part, zero + kPower[0]);
  p = fma(p, part, zero + 1.0f);
  const Bits bits = reinterpret_cast<Bits>(p) + (reinterpret_cast<Bits>(rounded) << 23);
  return x < kLowestPower ? zero : reinterpret_cast<V>(bits);
}
FOREWORD_INLINE Vec power(const Vec& x) {
  Vec v;
  FOREWORD_EACH_PART v.part[p] = power(x.part[p]);
  return v;
}

// Dot products are not inlined: among everything else the compiler finds no registers for them.

// out[R][kStepKeys] = (queries · keys) * key scales, for the keys of B blocks.
template <size_t R, size_t B>
[[gnu::noinline]] void dot_keys(const uint8_t* const* blocks, const KVLayout& layout, const int8_t* queries,
                                size_t stride, const int32_t* starts, float* out) {
  const uint8_t* block[B];
  each<B>([&](size_t b) FOREWORD_INLINE_LAMBDA { block[b] = blocks[b]; });
  IntVec dots[R][B];
  each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
    each<B>([&](size_t b) FOREWORD_INLINE_LAMBDA { dots[r][b] = splat(starts[r]); });
  });
  const size_t bytes = layout.values, scales = layout.scales;
  for (size_t at = 0; at < bytes; at += 4 * kBlockSize, queries += 4) {
    IntVec key[B];
    each<B>([&](size_t b) FOREWORD_INLINE_LAMBDA { key[b] = load_ints(block[b] + at); });
    each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
      int32_t four;
      std::memcpy(&four, queries + r * stride, sizeof four);
      const IntVec channels = splat(four);
      each<B>([&](size_t b) FOREWORD_INLINE_LAMBDA { dots[r][b] = dot4(dots[r][b], key[b], channels); });
    });
  }
  each<B>([&](size_t b) FOREWORD_INLINE_LAMBDA {
    const Vec scale = load(reinterpret_cast<const float*>(block[b] + scales));
    each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
      store(out + r * kStepKeys + b * kBlockSize, to_float(dots[r][b]) * scale);
    });
  });
}

// sums = sums * shrink + the halves' (weights · values) * steps, for C vectors of channels.
template <size_t R, size_t C>
[[gnu::noinline]] void add_values(const Blocks& blocks, const uint8_t* weights, size_t offset, size_t width,
                                  const float* shrink, const float* steps, float* sums) {
  for (size_t half = 0; half < kHalves; ++half) {
    IntVec dots[R][C];
    each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
      each<C>([&](size_t c) FOREWORD_INLINE_LAMBDA { dots[r][c] = splat(int32_t{0}); });
    });
    const size_t begin = std::max(blocks.begin, half * kHalfBlocks);
    const size_t end = std::min(blocks.end, (half + 1) * kHalfBlocks);
    for (size_t b = begin; b < end; ++b) {
      const uint8_t* values = blocks.at[b] + offset;
      const uint8_t* weight = weights + b * kBlockSize;
      for (size_t t = 0; t < kBlockSize; t += 4, values += 4 * width, weight += 4) {
        IntVec value[C];
        each<C>([&](size_t c) FOREWORD_INLINE_LAMBDA { value[c] = load_ints(values + c * 4 * kLanes); });
        each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
          int32_t four;
          std::memcpy(&four, weight + r * kStepKeys, sizeof four);
          const IntVec own = splat(four);
          each<C>([&](size_t c) FOREWORD_INLINE_LAMBDA { dots[r][c] = dot4(dots[r][c], own, value[c]); });
        });
      }
    }
    each<R>([&](size_t r) FOREWORD_INLINE_LAMBDA {
      const Vec step = splat(steps[half * kTogether + r]), shrunk = splat(half == 0 ? shrink[r] : 1.0f);
      each<C>([&](size_t c) FOREWORD_INLINE_LAMBDA {
        float* sum = sums + r * width + c * kLanes;
        store(sum, fma(to_float(dots[r][c]), step, load(sum) * shrunk));
      });
    });
  }
}

struct Int8Keys {
  const AttentionArgs& a;
  float* rest;
  const Rows rows;
  const size_t stride;  // bytes of a query
  int8_t* queries;      // [rows][stride]
  float* scales;        // [rows]: sq
  int32_t* starts;      // [rows]: what a dot product begins with
  alignas(64) float scores[kTogether * kStepKeys];  // of one step; then p * value_scale
  alignas(64) uint8_t weights[kTogether][kStepKeys];
  // For each row of a step: how its sums shrink, and what one unit of weight times value is worth in each half.
  float shrink[kTogether], steps[kHalves][kTogether];

  explicit Int8Keys(const AttentionArgs& args)
      : a(args), rest(nullptr), rows(start_rows(args, kNothingSeen, rest)), stride(round_up(a.layout.head_dim, kLanes)) {
    const size_t count = a.tokens * a.group, padded = round_up(count, kTogether);
    queries = reinterpret_cast<int8_t*>(rest);
    scales = rest + padded * stride / sizeof(float);
    starts = reinterpret_cast<int32_t*>(scales + padded);
    const float factor = a.scale * kLog2E / static_cast<float>(mixed_channels(a.layout.head_dim));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + r / a.group * a.q_stride + r % a.group * a.layout.head_dim;
      scales[r] = quantize_mixed(q, a.layout.head_dim, queries + r * stride) * factor;
      starts[r] = -128 * sum_of_bytes(queries + r * stride, stride);
    }
    // Rows are softened four at a time: those that do not exist get numbers too.
    for (size_t r = count; r < padded; ++r) scales[r] = 0.0f;
    for (size_t r = count % kTogether; r % kRowTile; ++r) std::fill_n(scores + r * kStepKeys, kStepKeys, 0.0f);
  }

  template <size_t R, size_t B>
  FOREWORD_INLINE void score(const Blocks& blocks, size_t block, size_t row, float* out) {
    dot_keys<R, B>(blocks.at + block, a.layout, queries + row * stride, stride, starts + row,
                   out + block * kBlockSize);
  }

  [[gnu::noinline]] void soften(const Blocks& blocks, size_t row, size_t count) {
    const Vec before = load(rows.highest + row), sq = load(scales + row);
    const Vec now = max(before, for_rows(count, kMax, [&](size_t r) FOREWORD_INLINE_LAMBDA {
                            return highest_of(scores + r * kStepKeys);
                          }));
    const Vec shrunk = power((before - now) * sq);
    store(rows.highest + row, now);
    store(shrink, shrunk);
    float base[kTogether], inverse[kHalves][kTogether];
    store(base, now * sq);
    const Weighed weighed = weigh(blocks, scales + row, base, count);
    store(rows.total + row, load(rows.total + row) * shrunk + weighed.total);
    each<kHalves>([&](size_t half) FOREWORD_INLINE_LAMBDA {
      const Vec top = max(weighed.highest[half], splat(kLeastHeight));
      store(inverse[half], splat(255.0f) / top);
      store(steps[half], top / splat(255.0f));
    });
    for (size_t r = 0; r < count; ++r) {
      Vec w[kStepBlocks];
      each<kStepBlocks>([&](size_t b) FOREWORD_INLINE_LAMBDA {
        w[b] = load(scores + r * kStepKeys + b * kBlockSize) * splat(inverse[b / kHalfBlocks][r]);
      });
      store_rounded(weights[r], w);
    }
  }

  // For each row: the sum of p, and the highest w of each half.
  struct Weighed {
    Vec total, highest[kHalves];
  };

  // Puts w in the place of the scores.
  FOREWORD_INLINE Weighed weigh(const Blocks& blocks, const float* sq, const float* base, size_t count) {
    Vec value_scale[kStepBlocks], totals[kTogether / 4] = {}, heights[kHalves][kTogether / 4] = {};
    for (size_t b = 0; b < kStepBlocks; ++b) {
      const bool used = blocks.begin <= b && b < blocks.end;
      value_scale[b] = used ? load_scales(blocks.at[b], kBlockSize) : splat(0.0f);
    }
    for (size_t first = 0; first < count; first += 4) {
      Vec total[4], highest[kHalves][4];
      each<4>([&](size_t i) FOREWORD_INLINE_LAMBDA {
        float* own = scores + (first + i) * kStepKeys;
        const Vec factor = splat(sq[first + i]), minus = splat(-base[first + i]);
        Vec p[kStepBlocks], w[kStepBlocks];
        each<kStepBlocks>([&](size_t b) FOREWORD_INLINE_LAMBDA {
          p[b] = power(fma(load(own + b * kBlockSize), factor, minus));
          w[b] = p[b] * value_scale[b];
          store(own + b * kBlockSize, w[b]);
        });
        total[i] = (p[0] + p[1]) + (p[2] + p[3]);
        each<kHalves>([&](size_t half) FOREWORD_INLINE_LAMBDA {
          highest[half][i] = max(w[half * kHalfBlocks], w[half * kHalfBlocks + 1]);
        });
      });
      totals[first / 4] = fold_to_quarters(total[0], total[1], total[2], total[3], kAdd);
      each<kHalves>([&](size_t half) FOREWORD_INLINE_LAMBDA {
        const Vec(&own)[4] = highest[half];
        heights[half][first / 4] = fold_to_quarters(own[0], own[1], own[2], own[3], kMax);
      });
    }
    return {fold_quarters(totals, kAdd), {fold_quarters(heights[0], kMax), fold_quarters(heights[1], kMax)}};
  }

  template <size_t R, size_t C>
  FOREWORD_INLINE void gather(const Blocks& blocks, size_t row, size_t slot, size_t channel) {
    add_values<R, C>(blocks, weights[slot], a.layout.values + channel * 4, rows.width, shrink + slot, &steps[0][slot],
                     rows.sums + row * rows.width + channel);
  }

  FOREWORD_INLINE Vec load_scales(const uint8_t* block, size_t first) const {
    return load(reinterpret_cast<const float*>(block + a.layout.scales) + first);
  }
};

}  // namespace

void attention_int8(const AttentionArgs& a) {
  Int8Keys keys(a);
  attend(a, keys, keys.rows);
}

#else

void attention_int8(const AttentionArgs& a) { kReferenceKernels.attention(a); }

#endif

}  // namespace foreword::FOREWORD_ISA
