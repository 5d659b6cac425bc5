// The plain twins of the attention kernels. In float, sums are in double; in int8 every operation is the one that
// attention.h defines, in its order.
#include "foreword/attention.h"

#include "foreword/blocks.h"
#include "foreword/half.h"
#include "ref.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace foreword {
namespace {

using namespace int8_attention;

float float_at(const uint8_t* base, size_t index) {
  float value;
  std::memcpy(&value, base + index * sizeof value, sizeof value);
  return value;
}

// One float of a block, `index` floats after `base`.
float cell(const KVLayout& layout, const uint8_t* base, size_t index) {
  return layout.dtype == KVDType::kFloat16 ? half_to_float(base + 2 * index) : float_at(base, index);
}

size_t key_byte(size_t channel, size_t slot) { return channel / 4 * 4 * kBlockSize + slot * 4 + channel % 4; }
size_t value_byte(const KVLayout& layout, size_t channel, size_t slot) {
  return slot / 4 * 4 * layout.width + channel * 4 + slot % 4;
}

// Positions that a query at `position` sees.
struct Seen {
  int64_t first, last;
  Seen(const AttentionArgs& a, int32_t position)
      : first(std::max(int64_t{0}, int64_t{position} - a.window + 1)), last(position) {}
  bool contains(int64_t at) const { return first <= at && at <= last; }
};

const uint8_t* block_of(const AttentionArgs& a, int64_t position) {
  const int32_t block = a.block_table[static_cast<size_t>(position) / kBlockSize];
  return a.kv + static_cast<size_t>(block) * a.block_stride;
}

void attend_in_float(const AttentionArgs& a, const float* q, const Seen& seen, float* out) {
  const KVLayout& layout = a.layout;
  std::vector<double> weights;
  for (int64_t at = seen.first; at <= seen.last; ++at) {
    const size_t slot = static_cast<size_t>(at) % kBlockSize;
    double dot = 0.0;
    for (size_t d = 0; d < layout.head_dim; ++d) {
      dot += double{q[d]} * double{cell(layout, block_of(a, at), d * kBlockSize + slot)};
    }
    weights.push_back(dot * double{a.scale});
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  double total = 0.0;
  for (double& w : weights) total += w = std::exp(w - highest);
  for (size_t d = 0; d < layout.head_dim; ++d) {
    double sum = 0.0;
    for (int64_t at = seen.first; at <= seen.last; ++at) {
      const uint8_t* values = block_of(a, at) + layout.values;
      const size_t slot = static_cast<size_t>(at) % kBlockSize;
      sum += weights[static_cast<size_t>(at - seen.first)] * double{cell(layout, values, slot * layout.width + d)};
    }
    out[d] = static_cast<float>(sum / total);
  }
}

// Eight-bit integers and what one of them is worth, before any other factor.
struct Quantized {
  std::vector<int32_t> values;
  float step;
};

Quantized quantize_head(const float* x, size_t n) {
  float amax = kLeastAmax;
  for (size_t i = 0; i < n; ++i) amax = std::isnan(x[i]) ? x[i] : std::max(amax, std::fabs(x[i]));
  const float inverse = 127.0f / amax;
  Quantized q{{}, amax / 127.0f};  // where that is not finite, whatever is made of it is no number either
  for (size_t i = 0; i < n; ++i) {
    q.values.push_back(std::isfinite(amax) ? static_cast<int32_t>(std::nearbyint(x[i] * inverse)) : 0);
  }
  return q;
}

// The Walsh-Hadamard transform of each mixed_channels(n) channels, not normalised.
std::vector<float> mixed(const float* from, size_t n) {
  std::vector<float> x(from, from + n);
  for (size_t half = 1; half < mixed_channels(n); half *= 2) {
    for (size_t i = 0; i < n; ++i) {
      if (i & half) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  return x;
}

float power(float x) {
  if (x < kLowestPower) return 0.0f;
  const float rounded = x + kRound, part = x - (rounded - kRound);
  float p = std::fma(kPower[2], part, kPower[1]);
  p = std::fma(p, part, kPower[0]);
  p = std::fma(p, part, 1.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(rounded) << 23));
}

// Sixteen lanes, each the sum of every sixteenth value by pairs, folded as a halving tree.
float sum_of(std::array<float, kStepKeys> p) {
  for (size_t i = 0; i < 16; ++i) p[i] = (p[i] + p[16 + i]) + (p[32 + i] + p[48 + i]);
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) p[i] += p[i + half];
  }
  return p[0];
}

// The running state of one query head.
struct Int8Row {
  float highest = kNothingSeen, total = 0.0f;
  std::vector<float> sums;
};

void add_step(const AttentionArgs& a, const Quantized& q, const Seen& seen, int64_t start, Int8Row& row) {
  const KVLayout& layout = a.layout;
  const float sq = q.step * (a.scale * kLog2E / static_cast<float>(mixed_channels(layout.head_dim)));
  std::array<float, kStepKeys> u, p, w{};
  float now = row.highest;
  for (size_t t = 0; t < kStepKeys; ++t) {
    const int64_t at = start + static_cast<int64_t>(t);
    if (!seen.contains(at)) continue;
    const uint8_t* block = block_of(a, at);
    int32_t dot = 0;
    for (size_t d = 0; d < layout.head_dim; ++d) dot += q.values[d] * (block[key_byte(d, t % kBlockSize)] - 128);
    u[t] = static_cast<float>(dot) * float_at(block + layout.scales, t % kBlockSize);
    now = std::max(now, u[t]);
  }
  const float shrink = power((row.highest - now) * sq), base = now * sq;
  row.highest = now;
  constexpr size_t kHalf = kStepKeys / 2;
  std::array<float, 2> height{kLeastHeight, kLeastHeight};
  for (size_t t = 0; t < kStepKeys; ++t) {
    const int64_t at = start + static_cast<int64_t>(t);
    p[t] = 0.0f;
    if (!seen.contains(at)) continue;
    p[t] = power(std::fma(u[t], sq, -base));
    w[t] = p[t] * float_at(block_of(a, at) + layout.scales, kBlockSize + t % kBlockSize);
    height[t / kHalf] = std::max(height[t / kHalf], w[t]);
  }
  row.total = row.total * shrink + sum_of(p);
  for (size_t d = 0; d < layout.head_dim; ++d) {
    std::array<int32_t, 2> sums{};
    for (size_t t = 0; t < kStepKeys; ++t) {
      const int64_t at = start + static_cast<int64_t>(t);
      if (!seen.contains(at)) continue;
      const uint8_t byte = block_of(a, at)[layout.values + value_byte(layout, d, t % kBlockSize)];
      const float weight = w[t] * (255.0f / height[t / kHalf]);
      if (!std::isfinite(weight)) continue;  // all weights are 0, or `total` is no number
      sums[t / kHalf] += static_cast<int32_t>(std::nearbyint(weight)) * static_cast<int8_t>(byte);
    }
    row.sums[d] *= shrink;
    for (size_t i = 0; i < 2; ++i) {
      row.sums[d] = std::fma(static_cast<float>(sums[i]), height[i] / 255.0f, row.sums[d]);
    }
  }
}

void attend_in_int8(const AttentionArgs& a, const float* x, const Seen& seen, float* out) {
  constexpr auto kStep = static_cast<int64_t>(kStepKeys);
  const size_t head_dim = a.layout.head_dim;
  const Quantized q = quantize_head(mixed(x, head_dim).data(), head_dim);
  Int8Row row;
  row.sums.resize(head_dim);
  for (int64_t start = seen.first / kStep * kStep; start <= seen.last; start += kStep) {
    add_step(a, q, seen, start, row);
  }
  const float share = 1.0f / row.total;
  for (size_t d = 0; d < head_dim; ++d) out[d] = row.sums[d] * share;
}

}  // namespace

namespace ref {

void write_kv(const WriteKVArgs& w) {
  const KVLayout& layout = w.layout;
  const size_t head_dim = layout.head_dim;
  if (layout.dtype == KVDType::kInt8) {
    const Quantized key = quantize_head(mixed(w.key, head_dim).data(), head_dim), value = quantize_head(w.value, head_dim);
    for (size_t d = 0; d < head_dim; ++d) {
      w.block[key_byte(d, w.slot)] = static_cast<uint8_t>(key.values[d] + 128);
      w.block[layout.values + value_byte(layout, d, w.slot)] = static_cast<uint8_t>(value.values[d]);
    }
    const float steps[2] = {key.step, value.step};
    for (size_t i = 0; i < 2; ++i) {
      std::memcpy(w.block + layout.scales + (i * kBlockSize + w.slot) * sizeof(float), steps + i, sizeof(float));
    }
    return;
  }
  const auto put = [&](uint8_t* base, size_t index, float x) {
    const uint16_t half = float_to_half(x);
    if (layout.dtype == KVDType::kFloat16) std::memcpy(base + index * sizeof half, &half, sizeof half);
    if (layout.dtype == KVDType::kFloat32) std::memcpy(base + index * sizeof x, &x, sizeof x);
  };
  for (size_t d = 0; d < head_dim; ++d) {
    put(w.block, d * kBlockSize + w.slot, w.key[d]);
    put(w.block + layout.values, w.slot * layout.width + d, w.value[d]);
  }
}

void attention(const AttentionArgs& a) {
  const auto attend = a.layout.dtype == KVDType::kInt8 ? attend_in_int8 : attend_in_float;
  for (size_t t = 0; t < a.tokens; ++t) {
    for (size_t g = 0; g < a.group; ++g) {
      const size_t head = g * a.layout.head_dim;
      attend(a, a.q + t * a.q_stride + head, Seen(a, a.positions[t]), a.out + t * a.out_stride + head);
    }
  }
}

}  // namespace ref

KVLayout kv_layout(KVDType dtype, size_t head_dim) {
  const size_t width = round_up(head_dim, kLanes);
  if (dtype == KVDType::kInt8) {
    const size_t values = kBlockSize * round_up(head_dim, 4), scales = values + kBlockSize * width;
    return {dtype, head_dim, width, values, scales, scales + 2 * kBlockSize * sizeof(float)};
  }
  const size_t element = dtype == KVDType::kFloat16 ? 2 : 4, values = kBlockSize * head_dim * element;
  const size_t bytes = values + kBlockSize * width * element;
  return {dtype, head_dim, width, values, bytes, bytes};
}

std::optional<KVDType> kv_dtype(std::string_view name) {
  if (name == "float32") return KVDType::kFloat32;
  if (name == "float16") return KVDType::kFloat16;
  if (name == "int8") return KVDType::kInt8;
  return std::nullopt;
}

}  // namespace foreword
