// Attention in tiles with a running softmax (FlashAttention: Dao et al. 2022; online normaliser: Milakov and Gimelshein
// 2018), over KV blocks found through a block table (PagedAttention: Kwon et al. 2023).
//
// A row is one query head of one token. Rows share the loads of keys and values and nothing else: each adds the blocks
// that it sees in ascending order, and a block that it does not see leaves its sums as they are, bit for bit.
#include "kernels.h"
#include "vec.h"

#include <limits>

namespace foreword::FOREWORD_ISA {
namespace {

constexpr int64_t kBlock = kBlockSize;
constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kNothingSeen = -1e30f;  // a running maximum that is finite, so that differences are never NaN

// Running state of the rows of one call.
struct Rows {
  float* sums;     // [rows][width]: values so far, weighted
  size_t width;    // head_dim, rounded up
  float* weights;  // [rows][kBlockSize]: of the block at hand
  float* highest;  // [rows]
  float* total;    // [rows]
  float* shrink;   // [rows]: what the block at hand makes of the sums before it
};

// Weights of one block's sixteen keys for R rows, by dot products over channels in ascending order.
template <size_t R>
FOREWORD_INLINE void score(const float* const (&q)[R], const float* keys, size_t head_dim, float scale, float* out) {
  Vec dots[R];
  for (Vec& v : dots) v = splat(0.0f);
  for (size_t d = 0; d < head_dim; ++d) {
    const Vec key = load(keys + d * kBlockSize);
    for (size_t r = 0; r < R; ++r) dots[r] = fma(splat(q[r][d]), key, dots[r]);
  }
  for (size_t r = 0; r < R; ++r) store(out + r * kBlockSize, dots[r] * splat(scale));
}

// Hides the tokens of a block outside (position - window, position].
void mask(float* scores, int64_t block_start, int64_t position, int64_t window) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const int64_t at = block_start + i;
    if (at > position || at <= position - window) scores[i] = kHidden;
  }
}

// Scores to weights, and the running maximum and total with them.
void soften(Rows& rows, size_t r) {
  float* weights = rows.weights + r * kBlockSize;
  const Vec scores = load(weights);
  const float before = rows.highest[r], block = highest(scores), now = before > block ? before : block;
  const Vec powers = exp(scores - splat(now));
  const float shrink = exp(Reg{} + (before - now))[0];
  store(weights, powers);
  rows.highest[r] = now;
  rows.shrink[r] = shrink;
  rows.total[r] = rows.total[r] * shrink + sum(powers);
}

// sums = sums * shrink + weights · values, for R rows, the block's tokens in ascending order.
template <size_t R>
FOREWORD_INLINE void gather(Rows& rows, size_t first, const float* values) {
  const float* weights = rows.weights + first * kBlockSize;
  for (size_t d = 0; d < rows.width; d += kLanes) {
    Vec sums[R];
    for (size_t r = 0; r < R; ++r) {
      sums[r] = load(rows.sums + (first + r) * rows.width + d) * splat(rows.shrink[first + r]);
    }
    for (size_t t = 0; t < kBlockSize; ++t) {
      const Vec value = load(values + t * rows.width + d);
      for (size_t r = 0; r < R; ++r) sums[r] = fma(splat(weights[r * kBlockSize + t]), value, sums[r]);
    }
    for (size_t r = 0; r < R; ++r) store(rows.sums + (first + r) * rows.width + d, sums[r]);
  }
}

// Calls body<R>(first) on runs of R rows, R as large as the registers allow.
template <size_t R, typename Body>
FOREWORD_INLINE void in_runs(size_t rows, Body body) {
  size_t first = 0;
  for (; first + R <= rows; first += R) body.template operator()<R>(first);
  if constexpr (R > 1) {
    if (first < rows) in_runs<R / 2>(rows - first, [&]<size_t S>(size_t at) { body.template operator()<S>(first + at); });
  }
}

constexpr size_t kMostRows = kParts == 1 ? 8 : kParts == 2 ? 4 : 2;

// One block for all rows.
void add_block(const AttentionArgs& a, Rows& rows, size_t block) {
  const float* keys = a.kv + static_cast<size_t>(a.block_table[block]) * a.block_stride;
  const float* values = keys + kBlockSize * a.head_dim;
  const auto start = static_cast<int64_t>(block * kBlockSize);
  in_runs<kMostRows>(a.tokens * a.group, [&]<size_t R>(size_t first) {
    const float* q[R];
    for (size_t r = 0; r < R; ++r) {
      const size_t token = (first + r) / a.group, head = (first + r) % a.group;
      q[r] = a.q + token * a.q_stride + head * a.head_dim;
    }
    score(q, keys, a.head_dim, a.scale, rows.weights + first * kBlockSize);
    for (size_t r = first; r < first + R; ++r) {
      mask(rows.weights + r * kBlockSize, start, a.positions[r / a.group], a.window);
      soften(rows, r);
    }
    gather<R>(rows, first, values);
  });
}

}  // namespace

void attention(const AttentionArgs& a) {
  const size_t count = a.tokens * a.group, width = round_up(a.head_dim, kLanes);
  float* const weights = a.scratch + count * width;
  float* const highest = weights + count * kBlockSize;
  Rows rows{a.scratch, width, weights, highest, highest + count, highest + 2 * count};
  for (size_t i = 0; i < count * width; ++i) rows.sums[i] = 0.0f;
  for (size_t r = 0; r < count; ++r) {
    rows.highest[r] = kNothingSeen;
    rows.total[r] = 0.0f;
  }

  const int64_t first_seen = int64_t{a.positions[0]} - a.window + 1, last_seen = a.positions[a.tokens - 1];
  for (int64_t block = first_seen > 0 ? first_seen / kBlock : 0; block <= last_seen / kBlock; ++block) {
    add_block(a, rows, static_cast<size_t>(block));
  }

  for (size_t r = 0; r < count; ++r) {
    float* out = a.out + r / a.group * a.out_stride + r % a.group * a.head_dim;
    const float share = 1.0f / rows.total[r];
    for (size_t d = 0; d < a.head_dim; ++d) out[d] = rows.sums[r * width + d] * share;
  }
}

}  // namespace foreword::FOREWORD_ISA
