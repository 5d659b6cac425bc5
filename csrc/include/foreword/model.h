// A model as the executor holds it: sizes, and views of weights in the mapped file. Mirrors foreword.models.spec.
#pragma once

#include "foreword/dtype.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace foreword {

// A stored matrix, `rows` outputs by `cols` inputs; y = x · wᵀ. A view: the owner of the file outlives it.
struct Matrix {
  const uint8_t* data = nullptr;
  DType type = DType::F32;
  size_t rows = 0, cols = 0, row_bytes = 0;
  const uint8_t* panels = nullptr;  // the same weights packed (foreword/panel.h), where compute is int8

  const uint8_t* row(size_t i) const { return data + i * row_bytes; }
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

// Rotary positions: pair i turns by position * frequencies[i].
struct Rope {
  std::vector<float> frequencies;  // one for each pair of channels
  bool interleaved = false;        // pairs are (2i, 2i+1), else (i, i + pairs)
};

// `factors` divide the frequencies one by one; empty: none. Rounded to float at each step, as the models were trained.
Rope make_rope(float base, size_t dim, float scale, std::span<const float> factors, bool interleaved);

inline constexpr int32_t kNoWindow = std::numeric_limits<int32_t>::max();

struct Layer {
  Matrix q, k, v, output;  // attention
  Matrix gate, up, down;   // MLP
  std::vector<float> attention_norm, mlp_norm;
  std::vector<float> q_norm, k_norm, post_attention_norm, post_mlp_norm;  // empty: the model has none
  float attention_scale = 1.0f;
  int32_t window = kNoWindow;  // tokens that a token sees, itself included
  size_t rope = 0;             // index into Model::ropes
  Activation activation = Activation::kSilu;
};

struct Model {
  size_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float norm_eps = 0.0f, embedding_scale = 1.0f;
  Matrix embedding, output;
  std::vector<float> output_norm;
  std::vector<Rope> ropes;
  std::vector<Layer> layers;

  // Linear layers multiply integers: all of them, or none.
  bool int8() const { return output.panels != nullptr; }

  size_t vocab_size() const { return output.rows; }
  size_t hidden_size() const { return embedding.cols; }
  size_t mlp_size() const { return layers.front().gate.rows; }
  size_t q_size() const { return num_heads * head_dim; }
  size_t kv_size() const { return num_kv_heads * head_dim; }
  size_t group() const { return num_heads / num_kv_heads; }

  // Throws std::invalid_argument where sizes do not fit each other: the executor trusts them.
  void check() const;
};

}  // namespace foreword
