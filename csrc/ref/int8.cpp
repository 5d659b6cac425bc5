// The plain twins of the integer kernels. Not only close to them: equal, bit for bit.
#include "foreword/blocks.h"
#include "foreword/panel.h"
#include "ref.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace foreword::ref {
namespace {

uint8_t weight(const PanelFormat& format, const uint8_t* record, size_t column, size_t k) {
  const size_t four = k / 4, at = column * 4 + k % 4;
  if (format.bits == 8) return record[four * kPanelColumns * 4 + at];
  return record[four % 4 * kPanelColumns * 4 + at] >> (four / 4 * 4) & 15;
}

float scale(const PanelFormat& format, const uint8_t* scales, size_t column) {
  if (!format.wide) return half_to_float(scales + 2 * column);
  float value;
  std::memcpy(&value, scales + 4 * column, 4);
  return value;
}

void quantize_group(const float* x, size_t n, int8_t* values, GroupScale& group) {
  // As integers, the bits of magnitudes are in the order of the magnitudes, and anything that is not a number comes last.
  uint32_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  const auto highest = std::bit_cast<float>(bits);
  const bool usable = highest >= kLeastActivation && std::isfinite(highest);
  const float up = usable ? 127.0f / highest : 0.0f;
  group = {highest < kLeastActivation ? 0.0f : highest / 127.0f, 0.0f, 0};
  for (size_t i = 0; i < kGroup; ++i) {
    values[i] = i < n && usable ? static_cast<int8_t>(std::nearbyint(x[i] * up)) : int8_t{0};
    group.sum += values[i];
  }
  group.scaled_sum = static_cast<float>(group.sum) * group.scale;
}

}  // namespace

void quantize(const QuantizeArgs& a) {
  for (size_t g = 0; g < groups_of(a.n); ++g) {
    const float* x = a.x + g * kGroup;
    const size_t n = std::min(kGroup, a.n - g * kGroup);
    int8_t* values = a.values + g * a.values_stride;
    GroupScale& group = a.groups[g * a.groups_stride];
    quantize_group(x, n, values, group);
    if (!a.rest_values) continue;
    float rest[kGroup];
    for (size_t i = 0; i < n; ++i) rest[i] = x[i] - static_cast<float>(values[i]) * group.scale;
    quantize_group(rest, n, a.rest_values + g * a.values_stride, a.rest_groups[g * a.groups_stride]);
  }
}

void int8_matmul(const Int8MatmulArgs& a) {
  const size_t record_bytes = a.format.record_bytes();
  for (size_t t = 0; t < a.tokens; ++t) {
    for (size_t column = 0; column < a.columns; ++column) {
      float sum = 0.0f;
      for (size_t g = 0; g < a.groups; ++g) {
        const uint8_t* record = a.panel + g * record_bytes;
        const uint8_t* scales = record + a.format.weight_bytes();
        const int8_t* x = a.x + t * a.x_stride + g * kGroup;
        const GroupScale& group = a.x_groups[t * a.groups + g];
        int32_t dot = 0;
        for (size_t k = 0; k < kGroup; ++k) dot += (weight(a.format, record, column, k) - a.format.zero) * x[k];
        sum = std::fma(static_cast<float>(dot) * group.scale, scale(a.format, scales, column), sum);
        if (!a.format.minima) continue;
        sum = std::fma(group.scaled_sum, scale(a.format, scales + a.format.scale_bytes(), column), sum);
      }
      float& out = a.out[t * a.out_stride + column];
      out = a.accumulate ? out + sum : sum;
    }
  }
}

}  // namespace foreword::ref
