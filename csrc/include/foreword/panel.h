// Weights packed for integer dot products, and activations quantised for them: compute="int8".
//
// Both are integers in groups of kGroup along k, each group with its own scale:
//   weight = d * (q - zero) + m, q unsigned        activation ≈ scale * i, i in [-127, 127]
// and a product is, group after group and exactly so in every kernel:
//   sum = fma(float(Σ (q - zero) * i) * scale, d, sum), then, where there are minima, sum = fma(scaled_sum, m, sum)
// Integer sums are exact, so a product's bits depend on nothing but its operands.
//
// A panel holds kPanelColumns outputs (rows of the stored matrix), one a lane. It is a run of records, one for each
// group:
//   weights  eight bits: [kGroup / 4][kPanelColumns][4], inputs in fours, as dot-product instructions take them;
//            four bits: [kGroup / 8][kPanelColumns][4], fours 0 to 3 in the low halves of the bytes, 4 to 7 in the high
//   d        [kPanelColumns], half floats or floats
//   m        the same, where the format has minima
// Decoding reads records as they are, once for all tokens; nothing else is kept. Another format: another entry in
// panel_format, and another kBits in csrc/simd/int8_matmul.cpp if its bytes lie in a new way.
#pragma once

#include "foreword/dtype.h"

#include <cstddef>
#include <cstdint>

namespace foreword {

inline constexpr size_t kGroup = 32;
inline constexpr size_t kPanelColumns = 32;
inline constexpr uint32_t kPanelVersion = 2;  // of this layout and of how files of it are written

struct PanelFormat {
  uint8_t bits;  // 4 or 8
  uint8_t zero;
  bool minima;
  bool wide;  // d and m are floats, not half floats

  constexpr size_t weight_bytes() const { return kPanelColumns * kGroup * bits / 8; }
  constexpr size_t scale_bytes() const { return kPanelColumns * (wide ? 4 : 2); }
  constexpr size_t record_bytes() const { return weight_bytes() + (minima ? 2 : 1) * scale_bytes(); }
};

constexpr size_t groups_of(size_t cols) { return (cols + kGroup - 1) / kGroup; }
constexpr size_t panels_of(size_t rows) { return (rows + kPanelColumns - 1) / kPanelColumns; }

// The panels that a type's matrices become. Where the type has groups of 32 and at most 8 bits, the file's own integers
// and scales, exactly; all others are rounded to 8 bits.
constexpr PanelFormat panel_format(DType type) {
  switch (type) {
    case DType::Q4_0: return {4, 8, false, false};
    case DType::Q4_1: return {4, 0, true, false};
    case DType::Q5_0: return {8, 16, false, false};
    case DType::Q5_1: return {8, 0, true, false};
    case DType::Q8_0:
    case DType::IQ4_NL: return {8, 128, false, false};
    case DType::Q4_K: return {4, 0, true, true};  // scales are products of a half float and six bits
    case DType::Q5_K: return {8, 0, true, true};
    case DType::F32:
    case DType::BF16: return {8, 0, true, true};  // whose range is a float's
    default: return {8, 0, true, false};
  }
}

constexpr size_t panel_bytes(DType type, size_t cols) { return groups_of(cols) * panel_format(type).record_bytes(); }

// Packs the panel of rows [first, first + kPanelColumns) of `rows` stored ones, `row_bytes` apart; columns beyond the
// last row, and inputs beyond the last, weigh nothing. Throws std::invalid_argument for weights that are not finite.
void pack_panel(DType type, const uint8_t* data, size_t row_bytes, size_t rows, size_t cols, size_t first,
                uint8_t* panel);

// Fletcher's checksum over 64-bit words, as fast as memory is read: finds damage, not malice.
uint64_t checksum(const uint8_t* data, size_t n);

inline constexpr float kLeastActivation = 1e-30f;

// What belongs to one group of a token's quantised activations.
struct GroupScale {
  float scale;
  float scaled_sum;  // float(sum) * scale
  int32_t sum;       // of the integers
};

// `n` activations to integers and their groups' scales; the last group is filled up with zeros. A group whose highest
// magnitude is below kLeastActivation is all zeros; one with an infinity or no number has a scale that says so.
struct QuantizeArgs {
  const float* x;
  size_t n;
  int8_t* values;  // of the first group
  GroupScale* groups;
  size_t values_stride = kGroup, groups_stride = 1;  // from a group to the next
  // What that left, x - scale * i, quantised in turn, at the same strides; null: not wanted.
  int8_t* rest_values = nullptr;
  GroupScale* rest_groups = nullptr;
};

// A panel's products with `tokens` activations: kGroup * groups bytes at x + t * x_stride, `groups` scales at
// x_groups + t * groups.
struct Int8MatmulArgs {
  const int8_t* x;
  size_t x_stride;
  const GroupScale* x_groups;
  size_t tokens;
  PanelFormat format;
  const uint8_t* panel;
  size_t groups;
  float* out;
  size_t out_stride;
  size_t columns;  // of the panel, to write: the rest is padding
  bool accumulate;
};

}  // namespace foreword
