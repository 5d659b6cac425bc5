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

// Rows that take a step together: first all scores, then all weights, then all sums, so that one row's long chain of
// operations from scores to weights runs beside the others'.
inline constexpr size_t kTogether = 16;
static_assert(kTogether == kLanes);  // what a row has one of, all of them have in one vector

// Running state of the rows of one call; arrays are padded to whole tiles of rows.
struct Rows {
  float* sums;     // [rows][width]: values so far, weighted
  size_t width;    // head_dim, rounded up
  float* highest;  // [rows]: score so far
  float* total;    // [rows]: weight so far
};

// The blocks of one step that some rows look at.
struct Blocks {
  const uint8_t* at[kStepBlocks];
  size_t begin, end;  // those outside are hidden from all of the rows
  bool partly;        // some key of them is hidden from some row
  int64_t start;      // position of the step's first key
};

// One value for each of up to kTogether rows, as lanes: `lanes_of(row)` folded by `op`. What stands in the lanes of rows
// that do not exist is of no account.
template <typename Op, typename Lanes>
FOREWORD_INLINE Vec for_rows(size_t rows, Op op, Lanes lanes_of) {
  Vec quarters[kTogether / 4] = {};
  for (size_t r = 0; r < rows; r += 4) {
    quarters[r / 4] = fold_to_quarters(lanes_of(r), lanes_of(r + 1), lanes_of(r + 2), lanes_of(r + 3), op);
  }
  return fold_quarters(quarters, op);
}

FOREWORD_INLINE Vec highest_of(const float* scores) {
  return max(max(load(scores), load(scores + kLanes)), max(load(scores + 2 * kLanes), load(scores + 3 * kLanes)));
}

// Calls body<R>(first) on runs of R rows, kRowTile as long as there are so many.
template <typename Body>
FOREWORD_INLINE void in_runs(size_t rows, Body body) {
  size_t first = 0;
  for (; first + kRowTile <= rows; first += kRowTile) body.template operator()<kRowTile>(first);
  switch (rows - first) {
    case 3: return body.template operator()<3>(first);
    case 2: return body.template operator()<2>(first);
    case 1: return body.template operator()<1>(first);
  }
}

// Hides keys outside (position - window, position] from one row.
FOREWORD_INLINE void hide(int64_t position, int64_t window, const Blocks& blocks, float* scores) {
  const auto last = static_cast<int32_t>(std::min<int64_t>(position - blocks.start, kStepKeys));
  const auto first = static_cast<int32_t>(std::max<int64_t>(position - window + 1 - blocks.start, 0));
  IntReg key;
  for (size_t i = 0; i < kWidth; ++i) key[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < kStepKeys; i += kWidth, key += static_cast<int32_t>(kWidth)) {
    const IntReg seen = (key >= first) & (key <= last);
    store_reg(scores + i, seen ? load_reg(scores + i) : Reg{} + kHidden);
  }
}

// The blocks that `rows` rows see of the step from `start` on; begin == end: none.
FOREWORD_INLINE Blocks seen_blocks(const AttentionArgs& a, int64_t start, size_t row, size_t rows) {
  constexpr auto kBlock = static_cast<int64_t>(kBlockSize), kStep = static_cast<int64_t>(kStepKeys);
  const int64_t oldest = int64_t{a.positions[row / a.group]} - a.window + 1;
  const int64_t newest = a.positions[(row + rows - 1) / a.group];
  Blocks blocks{{}, 0, 0, true, start};
  if (newest < start || oldest >= start + kStep) return blocks;
  blocks.partly = a.positions[row / a.group] < start + kStep - 1 || newest - a.window + 1 > start;
  if (oldest > start) blocks.begin = static_cast<size_t>((oldest - start) / kBlock);
  blocks.end = std::min(static_cast<size_t>((newest - start) / kBlock) + 1, kStepBlocks);
  for (size_t b = blocks.begin; b < blocks.end; ++b) {
    const size_t index = static_cast<size_t>(start) / kBlockSize + b;
    blocks.at[b] = a.kv + static_cast<size_t>(a.block_table[index]) * a.block_stride;
  }
  return blocks;
}

// One step for up to kTogether rows. `Keys` reads keys and values of one type and has room for their scores; `slot` is a
// row's place among the rows:
//   score<R, B>(blocks, block, row, out)      scores of B blocks from `block` on, into out[R][kStepKeys]
//   soften(blocks, row, rows)                 scores to weights; updates highest and total, remembers the shrinkage
//   gather<R, C>(blocks, row, slot, channel)  sums = sums * shrinkage + weights · values, C registers of channels
template <typename Keys>
FOREWORD_INLINE void add_step(const AttentionArgs& a, Keys& keys, int64_t start, size_t row, size_t rows,
                              size_t width) {
  const Blocks blocks = seen_blocks(a, start, row, rows);
  if (blocks.begin == blocks.end) return;
  const bool whole = blocks.end - blocks.begin == kStepBlocks;
  float* scores = keys.scores;
  if (!whole) std::fill_n(scores, rows * kStepKeys, kHidden);
  in_runs(rows, [&]<size_t R>(size_t slot) FOREWORD_INLINE_LAMBDA {
    float* out = scores + slot * kStepKeys;
    if (kSideBySide == kStepBlocks && whole) {
      keys.template score<R, kSideBySide>(blocks, 0, row + slot, out);
    } else {
      for (size_t b = blocks.begin; b < blocks.end; ++b) keys.template score<R, 1>(blocks, b, row + slot, out);
    }
  });
  for (size_t slot = 0; blocks.partly && slot < rows; ++slot) {
    hide(a.positions[(row + slot) / a.group], a.window, blocks, scores + slot * kStepKeys);
  }
  keys.soften(blocks, row, rows);
  in_runs(rows, [&]<size_t R>(size_t slot) FOREWORD_INLINE_LAMBDA {
    size_t d = 0;
    for (; d + kSideBySide * kLanes <= width; d += kSideBySide * kLanes) {
      keys.template gather<R, kSideBySide>(blocks, row + slot, slot, d);
    }
    for (; d < width; d += kLanes) keys.template gather<R, 1>(blocks, row + slot, slot, d);
  });
}

template <typename Keys>
void attend(const AttentionArgs& a, Keys& keys, const Rows& rows) {
  constexpr auto kStep = static_cast<int64_t>(kStepKeys);
  const size_t count = a.tokens * a.group, width = rows.width;
  const int64_t first_seen = std::max<int64_t>(int64_t{a.positions[0]} - a.window + 1, 0);
  const int64_t last_seen = a.positions[a.tokens - 1];
  for (int64_t start = first_seen / kStep * kStep; start <= last_seen; start += kStep) {
    for (size_t row = 0; row < count; row += kTogether) {
      add_step(a, keys, start, row, std::min(kTogether, count - row), width);
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
  const size_t count = round_up(a.tokens * a.group, kTogether), width = a.layout.width;
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
