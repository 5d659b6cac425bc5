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

// 2^x, 0 below kLowestPower.
template <typename V>
FOREWORD_INLINE V power(V x) {
  using Bits [[gnu::vector_size(sizeof(V))]] = uint32_t;  // below kLowestPower they wrap, and are not used
  const V zero{}, rounded = x + (zero + kRound), part = x - (rounded - kRound);
  V p = fma(zero + kPower[3], part, zero + kPower[2]);
  p = fma(p, part, zero + kPower[1]);
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

struct Int8Keys {
  const AttentionArgs& a;
  float* rest;
  const Rows rows;
  const size_t stride;  // bytes of a query
  int8_t* queries;      // [rows / kRowTile][stride / 4][kRowTile][4]
  float* scales;        // [rows]: sq
  int32_t* starts;      // [rows]: what a dot product begins with
  uint8_t weights[kTogether][kStepKeys];
  float shrink[kTogether];
  float steps[2][kTogether];  // for each half of the keys: what one unit of weight times value is worth

  explicit Int8Keys(const AttentionArgs& args)
      : a(args), rest(nullptr), rows(start_rows(args, kNothingSeen, rest)), stride(round_up(a.layout.head_dim, kLanes)) {
    const size_t count = a.tokens * a.group, padded = round_up(count, kRowTile);
    queries = reinterpret_cast<int8_t*>(rest);
    scales = rest + padded * stride / sizeof(float);
    starts = reinterpret_cast<int32_t*>(scales + padded);
    const float factor = a.scale * kLog2E / static_cast<float>(mixed_channels(a.layout.head_dim));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + r / a.group * a.q_stride + r % a.group * a.layout.head_dim;
      int8_t query[kMostHeadDim];
      scales[r] = quantize_mixed(q, a.layout.head_dim, query) * factor;
      int32_t sum = 0;
      for (size_t d = 0; d < stride; ++d) sum += query[d];
      for (size_t d = 0; d < stride; d += 4) {
        std::memcpy(queries + (r / kRowTile * stride + d) * kRowTile + r % kRowTile * 4, query + d, 4);
      }
      starts[r] = -128 * sum;
    }
    for (size_t r = count; r < padded; ++r) scales[r] = 0.0f;
  }

  template <size_t R, size_t B>
  FOREWORD_INLINE void score(const Blocks& blocks, size_t block, size_t row, float* out) {
    IntVec dots[R][B];
    for (size_t r = 0; r < R; ++r) {
      for (IntVec& v : dots[r]) v = splat(starts[row + r]);
    }
    const int8_t* query = queries + row * stride;
    for (size_t d = 0; d < a.layout.head_dim; d += 4) {
      IntVec key[B];
      for (size_t b = 0; b < B; ++b) key[b] = load_ints(blocks.at[block + b] + d * kBlockSize);
      for (size_t r = 0; r < R; ++r) {
        int32_t four;
        std::memcpy(&four, query + d * kRowTile + r * 4, sizeof four);
        const IntVec channels = splat(four);
        for (size_t b = 0; b < B; ++b) dots[r][b] = dot4(dots[r][b], key[b], channels);
      }
    }
    for (size_t b = 0; b < B; ++b) {
      const Vec scale = load_scales(blocks.at[block + b], 0);
      for (size_t r = 0; r < R; ++r) {
        store(out + r * kStepKeys + (block + b) * kBlockSize, to_float(dots[r][b]) * scale);
      }
    }
  }

  template <size_t R>
  FOREWORD_INLINE void soften(const Blocks& blocks, size_t row, size_t slot, const float* scores) {
    Vec lanes[R];
    for (size_t r = 0; r < R; ++r) lanes[r] = highest_of(scores + r * kStepKeys);
    const Quad before = load_quad(rows.highest + row), sq = load_quad(scales + row);
    const Quad height = for_rows<R>(lanes, highest4), now = before > height ? before : height;
    const Quad shrunk = power((before - now) * sq), base = now * sq;

    Vec value_scale[kStepBlocks], weighted[R][kStepBlocks];
    for (size_t b = 0; b < kStepBlocks; ++b) {
      const bool used = blocks.begin <= b && b < blocks.end;
      value_scale[b] = used ? load_scales(blocks.at[b], kBlockSize) : splat(0.0f);
    }
    Vec heights[2][R];
    for (size_t r = 0; r < R; ++r) {
      Vec p[kStepBlocks];
      for (size_t b = 0; b < kStepBlocks; ++b) {
        p[b] = power(fma(load(scores + r * kStepKeys + b * kBlockSize), splat(sq[r]), splat(-base[r])));
        weighted[r][b] = p[b] * value_scale[b];
      }
      lanes[r] = (p[0] + p[1]) + (p[2] + p[3]);
      for (size_t half = 0; half < 2; ++half) heights[half][r] = max(weighted[r][2 * half], weighted[r][2 * half + 1]);
    }
    store_quad(rows.highest + row, now);
    store_quad(shrink + slot, shrunk);
    store_quad(rows.total + row, load_quad(rows.total + row) * shrunk + for_rows<R>(lanes, sum4));

    for (size_t half = 0; half < 2; ++half) {
      const Quad most = for_rows<R>(heights[half], highest4), floor = Quad{} + kLeastHeight;
      const Quad top = most > floor ? most : floor, inverse = 255.0f / top;
      store_quad(steps[half] + slot, top / 255.0f);
      for (size_t r = 0; r < R; ++r) {
        for (size_t b = 2 * half; b < 2 * half + 2; ++b) {
          store_rounded(weights[slot + r] + b * kBlockSize, weighted[r][b] * splat(inverse[r]));
        }
      }
    }
  }

  template <size_t R, size_t C>
  FOREWORD_INLINE void gather(const Blocks& blocks, size_t row, size_t slot, size_t channel) {
    float* sums = rows.sums + row * rows.width + channel;
    IntVec dots[R][C];
    add_up(blocks, 0, slot, channel, dots);
    each<R, C>([&](size_t r, size_t c) FOREWORD_INLINE_LAMBDA {
      float* sum = sums + r * rows.width + c * kLanes;
      store(sum, fma(to_float(dots[r][c]), splat(steps[0][slot + r]), load(sum) * splat(shrink[slot + r])));
    });
    add_up(blocks, 1, slot, channel, dots);
    each<R, C>([&](size_t r, size_t c) FOREWORD_INLINE_LAMBDA {
      float* sum = sums + r * rows.width + c * kLanes;
      store(sum, fma(to_float(dots[r][c]), splat(steps[1][slot + r]), load(sum)));
    });
  }

  // dots = weights · values over half of the step's keys.
  template <size_t R, size_t C>
  FOREWORD_INLINE void add_up(const Blocks& blocks, size_t half, size_t slot, size_t channel, IntVec (&dots)[R][C]) {
    each<R, C>([&](size_t r, size_t c) FOREWORD_INLINE_LAMBDA { dots[r][c] = splat(int32_t{0}); });
    const size_t begin = std::max(blocks.begin, half * 2), end = std::min(blocks.end, half * 2 + 2);
    for (size_t b = begin; b < end; ++b) {
      const uint8_t* values = blocks.at[b] + a.layout.values + channel * 4;
      for (size_t t = 0; t < kBlockSize; t += 4) {
        IntVec value[C];
        for (size_t c = 0; c < C; ++c) value[c] = load_ints(values + t * rows.width + c * 4 * kLanes);
        for (size_t r = 0; r < R; ++r) {
          int32_t four;
          std::memcpy(&four, weights[slot + r] + b * kBlockSize + t, sizeof four);
          const IntVec weight = splat(four);
          for (size_t c = 0; c < C; ++c) dots[r][c] = dot4(dots[r][c], weight, value[c]);
        }
      }
    }
  }

  template <size_t R, size_t C, typename Body>
  FOREWORD_INLINE static void each(Body body) {
    for (size_t r = 0; r < R; ++r) {
      for (size_t c = 0; c < C; ++c) body(r, c);
    }
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
