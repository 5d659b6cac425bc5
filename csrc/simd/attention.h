// What attention has in common over all types of keys and values.
//
// Tiles with a running softmax (FlashAttention: Dao et al. 2022; online normaliser: Milakov and Gimelshein 2018), over
// KV blocks found through a block table (PagedAttention: Kwon et al. 2023).
//
// A row is one query head of one token. Rows share the loads of keys and values and nothing else: each takes the steps
// of kStepKeys keys in ascending order, and a key that it does not see leaves its sums as they are, bit for bit.
#pragma once

#include "vec.h"

#include <algorithm>
#include <limits>

namespace foreword::FOREWORD_ISA {

inline constexpr size_t kStepBlocks = kStepKeys / kBlockSize;
inline constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Blocks and value registers that are taken side by side: as many as the registers have room for sums, with kRowTile
// rows.
inline constexpr size_t kSideBySide = kParts == 1 ? 4 : 1;

// Running state of the rows of one call; arrays are padded to whole tiles of rows.
struct Rows {
  float* sums;     // [rows][width]: values so far, weighted
  size_t width;    // head_dim, rounded up
  float* highest;  // [rows]: score so far
  float* total;    // [rows]: weight so far
};

// The blocks of one step that R rows look at.
struct Blocks {
  const uint8_t* at[kStepBlocks];
  size_t begin, end;  // those outside are hidden from all rows
  int64_t start;      // position of the step's first key
};

// R rows' scores, then weights, of a step's keys.
template <size_t R>
using Scores = Vec[R][kStepBlocks];

FOREWORD_INLINE Quad load_quad(const float* p) {
  Quad q;
  std::memcpy(&q, p, sizeof q);
  return q;
}
FOREWORD_INLINE void store_quad(float* p, Quad q) { std::memcpy(p, &q, sizeof q); }

// One value for each of R rows, made of their lanes by `fold4`.
template <size_t R, typename Fold4>
FOREWORD_INLINE Quad for_rows(const Vec (&v)[R], Fold4 fold4) {
  return fold4(v[0], v[R > 1 ? 1 : 0], v[R > 2 ? 2 : 0], v[R > 3 ? 3 : 0]);
}

// Hides keys outside (position - window, position].
template <size_t R>
FOREWORD_INLINE void hide(const AttentionArgs& a, const Blocks& blocks, size_t first_row, Scores<R>& scores) {
  IntReg lane[kParts];
  FOREWORD_EACH_PART {
    for (size_t i = 0; i < kWidth; ++i) lane[p][i] = static_cast<int32_t>(p * kWidth + i);
  }
  for (size_t r = 0; r < R; ++r) {
    const int64_t position = a.positions[(first_row + r) / a.group];
    const auto last = static_cast<int32_t>(std::min<int64_t>(position - blocks.start, kStepKeys));
    const auto first = static_cast<int32_t>(std::max<int64_t>(position - a.window + 1 - blocks.start, 0));
    for (size_t b = 0; b < kStepBlocks; ++b) {
      const auto shift = static_cast<int32_t>(b * kBlockSize);
      FOREWORD_EACH_PART {
        const IntReg seen = (lane[p] + shift >= first) & (lane[p] + shift <= last);
        scores[r][b].part[p] = seen ? scores[r][b].part[p] : Reg{} + kHidden;
      }
    }
  }
}

// One step for R rows. `Keys` reads keys and values of one type:
//   score<R, B>(blocks, block, row, out)  scores of B blocks from `block` on
//   soften<R>(blocks, row, scores)        scores to weights; updates highest and total, remembers the shrinkage
//   gather<R, C>(blocks, row, channel)    sums = sums * shrinkage + weights · values, C registers of channels
template <size_t R, typename Keys>
FOREWORD_INLINE void add_step(const AttentionArgs& a, Keys& keys, int64_t start, size_t row, size_t width) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockSize);
  const int64_t oldest = int64_t{a.positions[row / a.group]} - a.window + 1;
  const int64_t newest = a.positions[(row + R - 1) / a.group];
  if (newest < start || oldest >= start + static_cast<int64_t>(kStepKeys)) return;
  Blocks blocks{{}, 0, kStepBlocks, start};
  if (oldest > start) blocks.begin = static_cast<size_t>((oldest - start) / kBlock);
  if (newest < start + static_cast<int64_t>(kStepKeys)) blocks.end = static_cast<size_t>((newest - start) / kBlock) + 1;
  for (size_t b = blocks.begin; b < blocks.end; ++b) {
    const size_t index = static_cast<size_t>(start) / kBlockSize + b;
    blocks.at[b] = a.kv + static_cast<size_t>(a.block_table[index]) * a.block_stride;
  }

  Scores<R> scores;
  if (kSideBySide == kStepBlocks && blocks.end - blocks.begin == kStepBlocks) {
    keys.template score<R, kStepBlocks>(blocks, 0, row, scores);
  } else {
    for (auto& own : scores) {
      for (Vec& v : own) v = splat(kHidden);
    }
    for (size_t b = blocks.begin; b < blocks.end; ++b) keys.template score<R, 1>(blocks, b, row, scores);
  }
  const int64_t all_seen = a.positions[row / a.group];  // of causality; of the window, the newest row's are fewest
  if (all_seen < start + static_cast<int64_t>(kStepKeys) - 1 || newest - a.window + 1 > start) {
    hide<R>(a, blocks, row, scores);
  }
  keys.template soften<R>(blocks, row, scores);
  size_t d = 0;
  for (; d + kSideBySide * kLanes <= width; d += kSideBySide * kLanes) {
    keys.template gather<R, kSideBySide>(blocks, row, d);
  }
  for (; d < width; d += kLanes) keys.template gather<R, 1>(blocks, row, d);
}

template <typename Keys>
void attend(const AttentionArgs& a, Keys& keys, const Rows& rows) {
  constexpr auto kStep = static_cast<int64_t>(kStepKeys);
  const size_t count = a.tokens * a.group, width = rows.width;
  const int64_t first_seen = std::max<int64_t>(int64_t{a.positions[0]} - a.window + 1, 0);
  const int64_t last_seen = a.positions[a.tokens - 1];
  for (int64_t start = first_seen / kStep * kStep; start <= last_seen; start += kStep) {
    size_t row = 0;
    for (; row + kRowTile <= count; row += kRowTile) add_step<kRowTile>(a, keys, start, row, width);
    switch (count - row) {
      case 3: add_step<3>(a, keys, start, row, width); break;
      case 2: add_step<2>(a, keys, start, row, width); break;
      case 1: add_step<1>(a, keys, start, row, width); break;
    }
  }
  for (size_t r = 0; r < count; ++r) {
    float* out = a.out + r / a.group * a.out_stride + r % a.group * a.layout.head_dim;
    const float share = 1.0f / rows.total[r];
    for (size_t d = 0; d < a.layout.head_dim; ++d) out[d] = rows.sums[r * width + d] * share;
  }
}

// State at the start of the scratch memory, `highest` as given; what follows is free from `rest` on.
FOREWORD_INLINE Rows start_rows(const AttentionArgs& a, float highest, float*& rest) {
  const size_t count = round_up(a.tokens * a.group, kRowTile), width = a.layout.width;
  const Rows rows{a.scratch, width, a.scratch + count * width, a.scratch + count * (width + 1)};
  rest = rows.total + count;
  for (size_t i = 0; i < count * width; ++i) rows.sums[i] = 0.0f;
  for (size_t r = 0; r < count; ++r) {
    rows.highest[r] = highest;
    rows.total[r] = 0.0f;
  }
  return rows;
}

void attention_int8(const AttentionArgs& args);

}  // namespace foreword::FOREWORD_ISA
