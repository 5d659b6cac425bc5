// Norms, rotary positions and activations, one token at a time.
#include "kernels.h"
#include "vec.h"

#include <cmath>

namespace foreword::FOREWORD_ISA {
namespace {

// The last n % kLanes values in a vector of zeros: a tail goes the same way as the rest.
struct Tail {
  float values[kLanes] = {};
  Tail(const float* from, size_t n) { std::memcpy(values, from, n * sizeof(float)); }
};

// x * sigmoid(z)
FOREWORD_INLINE Vec times_sigmoid(const Vec& x, const Vec& z) { return x / (splat(1.0f) + exp(splat(0.0f) - z)); }

FOREWORD_INLINE Vec silu(const Vec& x) { return times_sigmoid(x, x); }

// 0.5 x (1 + tanh(u)) is x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x³).
FOREWORD_INLINE Vec gelu_tanh(const Vec& x) {
  const Vec inner = fma(x * x * x, splat(0.044715f), x);
  return times_sigmoid(x, inner * splat(1.5957691216f));
}

template <typename Activate>
FOREWORD_INLINE void gate_with(Activate activate, float* gate, const float* up, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(gate + i, activate(load(gate + i)) * load(up + i));
  if (i == n) return;
  Tail last(gate + i, n - i);
  const Tail last_up(up + i, n - i);
  store(last.values, activate(load(last.values)) * load(last_up.values));
  std::memcpy(gate + i, last.values, (n - i) * sizeof(float));
}

}  // namespace

void gate(Activation activation, float* gate, const float* up, size_t n) {
  switch (activation) {
    case Activation::kSilu: return gate_with([](const Vec& x) { return silu(x); }, gate, up, n);
    case Activation::kGeluTanh: return gate_with([](const Vec& x) { return gelu_tanh(x); }, gate, up, n);
  }
}

void rms_norm(const float* x, const float* weight, float eps, float* out, size_t n) {
  Vec squares = splat(0.0f);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  if (i < n) {
    const Vec last = load(Tail(x + i, n - i).values);
    squares = fma(last, last, squares);
  }
  const float scale = 1.0f / std::sqrt(sum(squares) / static_cast<float>(n) + eps);
  for (i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void rotate(float* x, const float* cosines, const float* sines, size_t pairs, bool interleaved) {
  const size_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
  size_t i = 0;
  for (; !interleaved && i + kLanes <= pairs; i += kLanes) {
    const Vec a = load(x + i), b = load(x + pairs + i), c = load(cosines + i), s = load(sines + i);
    store(x + i, a * c - b * s);
    store(x + pairs + i, b * c + a * s);
  }
  for (; i < pairs; ++i) {
    const float a = x[i * step], b = x[i * step + other];
    x[i * step] = a * cosines[i] - b * sines[i];
    x[i * step + other] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace foreword::FOREWORD_ISA
