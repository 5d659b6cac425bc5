#include "workspace.h"

#include "linear.h"

#include <algorithm>
#include <cstring>

namespace foreword {
namespace {

constexpr size_t kAttentionFloats = 8 * 1024;
constexpr size_t kLogitFloats = 4 * 1024 * 1024;

}  // namespace

size_t attention_tile(const Model& model) {
  return std::clamp(kAttentionFloats / (model.group() * model.head_dim), size_t{1}, kBlockSize);
}

size_t logit_rows(const Model& model) { return std::clamp(kLogitFloats / model.vocab_size(), size_t{1}, size_t{64}); }

void Buffer::reserve(size_t floats) {
  if (floats <= size_) return;
  data_.reset();
  size_ = 0;
  data_.reset(static_cast<float*>(::operator new(floats * sizeof(float), kAlignment)));
  std::memset(data_.get(), 0, floats * sizeof(float));
  size_ = floats;
}

void Workspace::reserve(const Model& model, size_t tokens, unsigned threads) {
  const size_t hidden_size = model.hidden_size();
  for (Activations* a : {&hidden, &normed, &branch}) a->reserve(tokens, hidden_size);
  for (Activations* a : {&q, &attended}) a->reserve(tokens, model.q_size());
  for (Activations* a : {&k, &v}) a->reserve(tokens, model.kv_size());
  mlp.reserve(tokens, model.mlp_size());
  logits.reserve(std::min(tokens, logit_rows(model)), model.vocab_size());

  turns.resize(model.ropes.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    const size_t pairs = model.ropes[i].frequencies.size();
    turns[i].cosines.reserve(tokens, pairs);
    turns[i].sines.reserve(tokens, pairs);
  }

  scratch.resize(threads);
  for (Scratch& own : scratch) {
    for (const size_t cols : {hidden_size, model.q_size(), model.mlp_size()}) {
      own.weights.reserve(panel_rows(cols) * round_up(cols, kLanes));
    }
    own.up.reserve(tokens * panel_rows(hidden_size));
    own.attention.reserve(attention_scratch(attention_tile(model), model.group(), model.head_dim));
  }
}

}  // namespace foreword
