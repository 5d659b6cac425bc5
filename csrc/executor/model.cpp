#include "foreword/model.h"

#include "foreword/attention.h"

#include <cmath>
#include <stdexcept>

namespace foreword {

Rope make_rope(float base, size_t dim, float scale, std::span<const float> factors, bool interleaved) {
  Rope rope{std::vector<float>(dim / 2), interleaved};
  for (size_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float wavelength = static_cast<float>(std::pow(double{base}, double{exponent}));
    const float frequency = 1.0f / wavelength / scale;
    rope.frequencies[i] = factors.empty() ? frequency : frequency / factors[i];
  }
  return rope;
}

void Model::check() const {
  const auto require = [](bool holds) {
    if (!holds) throw std::invalid_argument("the model's sizes do not fit each other");
  };
  const auto is = [](const Matrix& m, size_t rows, size_t cols) { return m.rows == rows && m.cols == cols; };
  const auto none_or = [](const std::vector<float>& norm, size_t size) { return norm.empty() || norm.size() == size; };
  require(!layers.empty() && num_kv_heads > 0 && num_heads > 0 && num_heads % num_kv_heads == 0);
  require(head_dim > 0 && head_dim <= kMostHeadDim);
  require(output.cols == hidden_size() && embedding.rows == vocab_size() && output_norm.size() == hidden_size());
  const auto packed = [&](const Matrix& m) { return (m.panels != nullptr) == int8(); };
  for (const Rope& rope : ropes) require(2 * rope.frequencies.size() <= head_dim);
  for (const Layer& layer : layers) {
    require(layer.rope < ropes.size() && layer.window > 0);
    require(is(layer.q, q_size(), hidden_size()) && is(layer.output, hidden_size(), q_size()));
    require(is(layer.k, kv_size(), hidden_size()) && is(layer.v, kv_size(), hidden_size()));
    require(is(layer.gate, mlp_size(), hidden_size()) && is(layer.up, mlp_size(), hidden_size()));
    require(is(layer.down, hidden_size(), mlp_size()));
    for (const Matrix* m : {&layer.q, &layer.k, &layer.v, &layer.output, &layer.gate, &layer.up, &layer.down}) {
      require(packed(*m));
    }
    require(layer.attention_norm.size() == hidden_size() && layer.mlp_norm.size() == hidden_size());
    require(none_or(layer.q_norm, head_dim) && none_or(layer.k_norm, head_dim));
    require(none_or(layer.post_attention_norm, hidden_size()) && none_or(layer.post_mlp_norm, hidden_size()));
  }
}

}  // namespace foreword
