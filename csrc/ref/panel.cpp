// Packs stored weights into panels. Runs once for a model file: what it makes is kept on disk.
#include "foreword/panel.h"

#include "foreword/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace foreword {
namespace {

// One group of one row: weight = d * (q - zero) + m.
struct Group {
  uint8_t q[kGroup] = {};
  float d = 0.0f, m = 0.0f;
};

// The half float nearest to x, ties to even.
uint16_t to_half(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(x);
  if (magnitude < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  if (!(magnitude < 65520.0f)) return sign | 0x7c00;
  const uint32_t kept = (bits & 0x7fffffff) - ((127 - 15) << 23);  // rebased exponent; 13 bits go
  return sign | static_cast<uint16_t>((kept + 0xfff + (kept >> 13 & 1)) >> 13);
}

float from_half(uint16_t half) {
  const uint8_t bytes[2] = {static_cast<uint8_t>(half), static_cast<uint8_t>(half >> 8)};
  return half_to_float(bytes);
}

void split_halves(const uint8_t qs[16], uint8_t* q) {
  for (size_t i = 0; i < 16; ++i) {
    q[i] = qs[i] & 15;
    q[i + 16] = qs[i] >> 4;
  }
}

void add_fifth_bits(const uint8_t qh[4], uint8_t* q) {
  for (size_t i = 0; i < kGroup; ++i) q[i] |= static_cast<uint8_t>((qh[i / 8] >> (i % 8) & 1) << 4);
}

Group read(const BlockQ4_0& b) {
  Group g{.d = half_to_float(b.d)};
  split_halves(b.qs, g.q);
  return g;
}

Group read(const BlockQ4_1& b) {
  Group g{.d = half_to_float(b.d), .m = half_to_float(b.m)};
  split_halves(b.qs, g.q);
  return g;
}

Group read(const BlockQ5_0& b) {
  Group g{.d = half_to_float(b.d)};
  split_halves(b.qs, g.q);
  add_fifth_bits(b.qh, g.q);
  return g;
}

Group read(const BlockQ5_1& b) {
  Group g{.d = half_to_float(b.d), .m = half_to_float(b.m)};
  split_halves(b.qs, g.q);
  add_fifth_bits(b.qh, g.q);
  return g;
}

Group read(const BlockQ8_0& b) {
  Group g{.d = half_to_float(b.d)};
  for (size_t i = 0; i < kGroup; ++i) g.q[i] = static_cast<uint8_t>(b.qs[i] + 128);
  return g;
}

Group read(const BlockIQ4_NL& b) {
  Group g{.d = half_to_float(b.d)};
  split_halves(b.qs, g.q);
  for (uint8_t& q : g.q) q = static_cast<uint8_t>(kIQ4Values[q] + 128);
  return g;
}

template <typename Block>
Group read_k(const Block& b, size_t part) {
  const ScaleMin s = k_scale_min(b.scales, part);
  Group g{.d = half_to_float(b.d) * static_cast<float>(s.scale), .m = -(half_to_float(b.dmin) * static_cast<float>(s.min))};
  for (size_t i = 0; i < kGroup; ++i) g.q[i] = b.qs[part / 2 * 32 + i] >> (part % 2 * 4) & 15;
  return g;
}

Group read_q5_k(const BlockQ5_K& b, size_t part) {
  Group g = read_k(b, part);
  for (size_t i = 0; i < kGroup; ++i) g.q[i] |= static_cast<uint8_t>((b.qh[i] >> part & 1) << 4);
  return g;
}

// Eight bits between the least and the greatest weight. `half`: d and m are such, d rounded up so that 255 reaches.
Group round_to_bytes(const float* weights, size_t n, bool half) {
  const auto [least, greatest] = std::minmax_element(weights, weights + n);
  Group g{.d = (*greatest - *least) / 255.0f, .m = *least};
  if (half) {
    g.m = from_half(to_half(g.m));
    g.d = (*greatest - std::min(g.m, *least)) / 255.0f;
    const uint16_t near = to_half(g.d);
    g.d = from_half(from_half(near) < g.d ? near + 1 : near);
  }
  if (g.d == 0.0f) return g;
  for (size_t i = 0; i < n; ++i) {
    g.q[i] = static_cast<uint8_t>(std::clamp(std::nearbyint((weights[i] - g.m) / g.d), 0.0f, 255.0f));
  }
  return g;
}

template <typename Block>
const Block& block(const uint8_t* row, size_t i) {
  return reinterpret_cast<const Block*>(row)[i];
}

// Rounded groups come a stored block at a time: `floats` is where the block of group `index` is unpacked.
Group read_rounded(DType type, const uint8_t* row, size_t cols, size_t index, float* floats) {
  const DTypeInfo& info = *dtype_info(static_cast<uint32_t>(type));
  const size_t unit = std::max<size_t>(info.block_elements, kGroup), first = index * kGroup;
  if (first % unit == 0) {
    const size_t n = std::min(unit, cols - first);
    dequantize_row(type, row + first / info.block_elements * info.block_bytes, floats, n);
    if (!std::all_of(floats, floats + n, [](float x) { return std::isfinite(x); })) {
      throw std::invalid_argument("a weight is not finite");
    }
  }
  return round_to_bytes(floats + first % unit, std::min(kGroup, cols - first), !panel_format(type).wide);
}

Group read_group(DType type, const uint8_t* row, size_t cols, size_t index, float* floats) {
  switch (type) {
    case DType::Q4_0: return read(block<BlockQ4_0>(row, index));
    case DType::Q4_1: return read(block<BlockQ4_1>(row, index));
    case DType::Q5_0: return read(block<BlockQ5_0>(row, index));
    case DType::Q5_1: return read(block<BlockQ5_1>(row, index));
    case DType::Q8_0: return read(block<BlockQ8_0>(row, index));
    case DType::IQ4_NL: return read(block<BlockIQ4_NL>(row, index));
    case DType::Q4_K: return read_k(block<BlockQ4_K>(row, index / 8), index % 8);
    case DType::Q5_K: return read_q5_k(block<BlockQ5_K>(row, index / 8), index % 8);
    default: return read_rounded(type, row, cols, index, floats);
  }
}

void write_scale(uint8_t* scales, size_t column, float value, bool wide) {
  if (!std::isfinite(value)) throw std::invalid_argument("a weight is not finite");
  if (wide) {
    std::memcpy(scales + 4 * column, &value, 4);
  } else {
    const uint16_t half = to_half(value);
    if ((half & 0x7fff) == 0x7c00) throw std::invalid_argument("a weight is too large for int8");
    std::memcpy(scales + 2 * column, &half, 2);
  }
}

void write_group(const Group& g, const PanelFormat& format, size_t column, uint8_t* record) {
  for (size_t four = 0; four < kGroup / 4; ++four) {
    for (size_t i = 0; i < 4; ++i) {
      const uint8_t q = g.q[four * 4 + i];
      if (format.bits == 8) {
        record[(four * kPanelColumns + column) * 4 + i] = q;
      } else {
        record[(four % 4 * kPanelColumns + column) * 4 + i] |= static_cast<uint8_t>(q << four / 4 * 4);
      }
    }
  }
  uint8_t* scales = record + format.weight_bytes();
  write_scale(scales, column, g.d, format.wide);
  if (format.minima) write_scale(scales + format.scale_bytes(), column, g.m, format.wide);
}

}  // namespace

void pack_panel(DType type, const uint8_t* data, size_t row_bytes, size_t rows, size_t cols, size_t first,
                uint8_t* panel) {
  const PanelFormat format = panel_format(type);
  std::memset(panel, 0, panel_bytes(type, cols));
  float floats[256];
  for (size_t column = 0; column < std::min(kPanelColumns, rows - first); ++column) {
    const uint8_t* row = data + (first + column) * row_bytes;
    for (size_t index = 0; index < groups_of(cols); ++index) {
      write_group(read_group(type, row, cols, index, floats), format, column, panel + index * format.record_bytes());
    }
  }
}

}  // namespace foreword
