// The plain twin of every kernel: one obvious loop each, sums in double. The truth that csrc/simd is compared with.
#include "foreword/kernels.h"
#include "ref.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace foreword {
namespace {

void matmul(const MatmulArgs& a) {
  for (size_t t = 0; t < a.tokens; ++t) {
    for (size_t r = 0; r < a.rows; ++r) {
      double sum = 0.0;
      for (size_t k = 0; k < a.k; ++k) sum += double{a.x[t * a.x_stride + k]} * double{a.w[r * a.w_stride + k]};
      float& out = a.out[t * a.out_stride + r];
      out = (a.accumulate ? out : 0.0f) + static_cast<float>(sum);
    }
  }
}

// One query against all positions that it sees.
void attend(const AttentionArgs& a, const float* q, int32_t position, float* out) {
  const int32_t first = std::max(0, a.window > position ? 0 : position - a.window + 1);
  const auto count = static_cast<size_t>(position - first) + 1;
  const size_t width = round_up(a.head_dim, kLanes);  // of a value
  const auto keys_of = [&](size_t i) {
    const size_t at = static_cast<size_t>(first) + i;
    return a.kv + static_cast<size_t>(a.block_table[at / kBlockSize]) * a.block_stride;
  };
  const auto slot_of = [&](size_t i) { return (static_cast<size_t>(first) + i) % kBlockSize; };

  std::vector<double> weights(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t d = 0; d < a.head_dim; ++d) {
      weights[i] += double{q[d]} * double{keys_of(i)[d * kBlockSize + slot_of(i)]};
    }
    weights[i] *= a.scale;
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  double total = 0.0;
  for (double& w : weights) total += w = std::exp(w - highest);
  for (size_t d = 0; d < a.head_dim; ++d) {
    double sum = 0.0;
    for (size_t i = 0; i < count; ++i) {
      sum += weights[i] * double{keys_of(i)[kBlockSize * a.head_dim + slot_of(i) * width + d]};
    }
    out[d] = static_cast<float>(sum / total);
  }
}

void attention(const AttentionArgs& a) {
  for (size_t t = 0; t < a.tokens; ++t) {
    for (size_t g = 0; g < a.group; ++g) {
      const size_t head = g * a.head_dim;
      attend(a, a.q + t * a.q_stride + head, a.positions[t], a.out + t * a.out_stride + head);
    }
  }
}

void rms_norm(const float* x, const float* weight, float eps, float* out, size_t n) {
  double squares = 0.0;
  for (size_t i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
  const auto scale = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(n) + double{eps}));
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void rotate(float* x, const float* cosines, const float* sines, size_t pairs, bool interleaved) {
  for (size_t i = 0; i < pairs; ++i) {
    float& a = x[interleaved ? 2 * i : i];
    float& b = x[interleaved ? 2 * i + 1 : i + pairs];
    const float turned = a * cosines[i] - b * sines[i];
    b = b * cosines[i] + a * sines[i];
    a = turned;
  }
}

void gate(Activation activation, float* gate, const float* up, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double g = gate[i];
    const double activated =
        activation == Activation::kSilu
            ? g / (1.0 + std::exp(-g))
            : 0.5 * g * (1.0 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));  // sqrt(2/pi)
    gate[i] = static_cast<float>(activated) * up[i];
  }
}

}  // namespace

const Kernels kReferenceKernels{"reference",   dequantize_row,   matmul,   attention, ref::quantize,
                                ref::int8_matmul, rms_norm, rotate, gate};

}  // namespace foreword
