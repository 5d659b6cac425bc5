// The plain twin of every kernel: one obvious loop each, sums in double. The truth that csrc/simd is compared with.
#include "foreword/kernels.h"
#include "ref.h"

#include <cmath>

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

const Kernels kReferenceKernels{"reference",   dequantize_row,   matmul,   ref::write_kv, ref::attention,
                                ref::quantize, ref::int8_matmul, rms_norm, rotate,        gate};

}  // namespace foreword
