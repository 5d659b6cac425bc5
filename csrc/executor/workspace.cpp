#include "workspace.h"

#include "linear.h"

#include <algorithm>
#include <bit>

namespace foreword {
namespace {

constexpr size_t kAttentionFloats = 8 * 1024;
constexpr size_t kLogitFloats = 4 * 1024 * 1024;

}  // namespace

size_t attention_tile(const Model& model) {
  return std::clamp(kAttentionFloats / (model.group() * model.head_dim), size_t{1}, kBlockSize);
}

size_t logit_rows(const Model& model) { return std::clamp(kLogitFloats / model.vocab_size(), size_t{1}, size_t{64}); }

void Workspace::reserve(const Model& model, size_t tokens, size_t wanted, unsigned threads) {
  const size_t hidden_size = model.hidden_size();
  for (Activations* a : {&hidden, &normed.floats, &branch}) a->reserve(tokens, hidden_size);
  for (Activations* a : {&q, &attended.floats}) a->reserve(tokens, model.q_size());
  for (Activations* a : {&k, &v}) a->reserve(tokens, model.kv_size());
  if (model.int8()) {
    for (Quantised* part : {&normed.integers, &normed.rest}) part->reserve(tokens, hidden_size);
    attended.integers.reserve(tokens, model.q_size());
    mlp.integers.reserve(tokens, model.mlp_size());
  } else {
    mlp.floats.reserve(tokens, model.mlp_size());
  }
  // Doubled as it grows: rows are large, and their number goes up one by one with the streams.
  logits.reserve(std::min(std::bit_ceil(wanted), logit_rows(model)), model.vocab_size());

  turns.resize(model.ropes.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    const size_t pairs = model.ropes[i].frequencies.size();
    turns[i].cosines.reserve(tokens, pairs);
    turns[i].sines.reserve(tokens, pairs);
  }

  scratch.resize(threads);
  for (Scratch& own : scratch) {
    if (model.int8()) {
      for (Buffer<float>* part : {&own.gate, &own.up}) part->reserve(tokens * kPanelColumns);
    } else {
      for (const size_t cols : {hidden_size, model.q_size(), model.mlp_size()}) {
        own.weights.reserve(panel_rows(cols) * round_up(cols, kLanes));
      }
      own.up.reserve(tokens * panel_rows(hidden_size));
    }
    own.attention.reserve(attention_scratch(attention_tile(model), model.group(), model.head_dim));
  }
}

}  // namespace foreword
