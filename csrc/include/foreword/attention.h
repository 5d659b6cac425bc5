// Attention over blocks of keys and values, and how a block lies in memory.
#pragma once

#include "foreword/shapes.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace foreword {

// What keys and values are kept as. kInt8: eight bits and a float scale for each token and head.
enum class KVDType : uint8_t { kFloat32, kFloat16, kInt8 };

// Where things are in the part of a block that belongs to one layer and one kv head; offsets in bytes. With `width` the
// head's size rounded up to kLanes:
//   float32, float16  keys [head_dim][kBlockSize], values [kBlockSize][width]
//   int8              keys [head_dim / 4, rounded up][kBlockSize][4], 128 added; values [kBlockSize / 4][width][4];
//                     then kBlockSize scales of the keys, as floats, and kBlockSize of the values.
// Sixteen tokens are the lanes of a key's register, sixteen channels those of a value's; the inner four bytes are what
// one dot-product instruction adds up.
struct KVLayout {
  KVDType dtype;
  size_t head_dim, width;
  size_t values, scales;
  size_t bytes;  // of the whole part
};

inline constexpr size_t kMostHeadDim = 1024;

KVLayout kv_layout(KVDType dtype, size_t head_dim);

// "float32", "float16" or "int8"; nothing for any other name.
std::optional<KVDType> kv_dtype(std::string_view name);

// One token's key and value (head_dim floats each), to be written into `slot` of a block. What float16 cannot hold
// becomes its largest number.
struct WriteKVArgs {
  const KVLayout& layout;
  uint8_t* block;  // the head's part of it
  size_t slot;
  const float* key;
  const float* value;
};

// Attention of a few tokens of one sequence, for the query heads that share one key/value head.
//
// Block i of the sequence stands at kv + block_table[i] * block_stride. Token t sees positions
// (positions[t] - window, positions[t]].
struct AttentionArgs {
  const float* q;  // [tokens][group][head_dim], tokens q_stride apart
  size_t q_stride;
  float* out;  // the same shape, tokens out_stride apart
  size_t out_stride;
  size_t tokens, group;
  const int32_t* positions;  // ascending
  int32_t window;
  float scale;
  const KVLayout& layout;
  const uint8_t* kv;
  const int32_t* block_table;
  size_t block_stride;
  float* scratch;  // attention_scratch() floats
};

// The running softmax takes this many keys in a step. Steps begin at multiples of it, wherever a query stands and
// whatever is computed beside it, so that a token's result is always the same.
inline constexpr size_t kStepKeys = 64;

// Floats that a call works in: sums, and the queries once more.
constexpr size_t attention_scratch(size_t tokens, size_t group, size_t head_dim) {
  return round_up(tokens * group, kLanes) * (2 * round_up(head_dim, kLanes) + 4);
}

// The arithmetic of int8 attention, the same to the bit on every instruction set.
//
// Queries and keys are mixed by a Walsh-Hadamard transform before they are rounded: products stay what they were (times
// `mixed_channels`), and no channel stands out any more, on which the other channels would lose their bits. (Ashkboos et
// al. 2024, QuaRot.) For a query head, with x the mixed query:
//   a = max |x|, floored;  qi = round(x * (127 / a));  sq = a / 127 * (scale * log2(e) / mixed_channels)
//   u[t] = (qi · ki[t]) * key_scale[t]
// and for each step of kStepKeys keys, with m the highest u so far:
//   m' = max(m, u);  shrink = 2^((m - m') * sq);  p[t] = 2^(u[t] * sq - m' * sq), 0 where hidden
//   total = total * shrink + sum of p
//   w[t] = p[t] * value_scale[t];  for each half of the step:  h = max w, floored;  wi = round(w * (255 / h))
//   out = (out * shrink + (wi · vi) * (h / 255) of the first half) + (wi · vi) * (h / 255) of the second
// The denominator is the sum of p itself: summed from the rounded weights it would be as wrong as the weight of a token
// with a small value (an attention sink) is coarse. 2^x has a polynomial of degree 3 with relative error 1e-4.
namespace int8_attention {
// Channels that are mixed with each other: the largest power of two that divides the head.
constexpr size_t mixed_channels(size_t head_dim) { return head_dim & -head_dim; }
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLeastAmax = 1e-30f;
inline constexpr float kLeastHeight = 1e-35f;
inline constexpr float kNothingSeen = -1e30f;  // m before the first key: finite, so that differences are never NaN
inline constexpr float kLowestPower = -100.0f;  // below, 2^x is 0
inline constexpr float kRound = 12582912.0f;    // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
inline constexpr float kPower[3] = {0.6932829f, 0.24221095f, 0.055008925f};
}  // namespace int8_attention

}  // namespace foreword
