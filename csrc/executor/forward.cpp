#include "forward.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace foreword {
namespace {

constexpr size_t kTokenGrain = 8;  // tokens that a thread takes at a time, where a token costs little

// A strip's activations stay in the second-level cache, and its weights, which come from further off, are used often
// enough. Multiples of the token tiles of integer products, too.
constexpr size_t kMostStrip = 48;
constexpr size_t kStripsPerThread = 2;  // or more, so that threads end together

// Rows of a strip; 0: too few rows for strips. Not in floats, where each strip would unpack all weights anew.
size_t strip_rows(const Model& model, size_t rows, unsigned threads) {
  const size_t each = rows / (kStripsPerThread * threads);
  if (!model.int8() || each < kBlockSize) return 0;
  return std::min(round_up(each, kBlockSize), kMostStrip);
}

template <typename Body>
void each_row(const Crew& crew, Rows rows, Body body) {
  crew.run(rows.count, kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t t = rows.first + begin; t < rows.first + end; ++t) body(t);
  });
}

}  // namespace

Batch all_rows(const Step& step) {
  Batch batch;
  batch.positions.reserve(step.token_ids.size());
  const int32_t* table = step.block_tables.data();
  for (size_t s = 0; s < step.lengths.size(); ++s) {
    batch.sequences.push_back({batch.end(), static_cast<size_t>(step.lengths[s]), table});
    for (int32_t i = 0; i < step.lengths[s]; ++i) batch.positions.push_back(step.starts[s] + i);
    table += step.table_lengths[s];
  }
  return batch;
}

Batch wanted_rows(const Step& step, const Batch& all) {
  Batch wanted;
  auto row = step.logit_rows.begin();
  for (const Batch::Run& sequence : all.sequences) {
    const size_t first = wanted.end();
    for (; row != step.logit_rows.end() && static_cast<size_t>(*row) < sequence.first + sequence.count; ++row) {
      wanted.positions.push_back(all.position(static_cast<size_t>(*row)));
    }
    if (wanted.end() > first) wanted.sequences.push_back({first, wanted.end() - first, sequence.block_table});
  }
  return wanted;
}

std::vector<Batch> cut(const Batch& batch, size_t most) {
  std::vector<Batch> strips;
  for (const Batch::Run& sequence : batch.sequences) {
    const size_t end = sequence.first + sequence.count;
    for (size_t first = sequence.first, next; first < end; first = next) {
      // to where a block ends
      next = std::min(end, first + most - static_cast<size_t>(batch.position(first)) % kBlockSize);
      if (strips.empty() || next - strips.back().first > most) strips.push_back({.first = first});
      Batch& strip = strips.back();
      strip.sequences.push_back({first, next - first, sequence.block_table});
      for (size_t t = first; t < next; ++t) strip.positions.push_back(batch.position(t));
    }
  }
  return strips;
}

Forward::Forward(const Model& model, const Kernels& kernels, ThreadPool& threads, KVPool& kv, Workspace& work)
    : model_(model), kernels_(kernels), threads_(threads), kv_(kv), work_(work), linear_(model, kernels, work) {}

void Forward::run(const Step& step) {
  Batch all = all_rows(step), wanted = wanted_rows(step, all);
  const Crew crew(threads_);
  embed(step.token_ids);
  compute_turns(all);
  const size_t last = model_.layers.size() - 1;
  if (const size_t most = strip_rows(model_, all.positions.size(), threads_.size())) {
    run_strips(cut(all, most));
  } else {
    set_tiles(all);
    for (size_t layer = 0; layer <= last; ++layer) advance(crew, layer, all);
  }
  // Nothing reads the last layer's output but the logits: the other tokens are done with their keys and values.
  if (wanted.positions.empty()) return;
  set_tiles(wanted);
  keep_rows(step.logit_rows);
  compute_turns(wanted);
  project_queries(crew, last, wanted);
  finish(crew, last, wanted);
  norm(crew, model_.output_norm, wanted.rows(), true);
}

void Forward::run_strips(std::vector<Batch> strips) {
  for (Batch& strip : strips) set_tiles(strip);
  threads_.run_stages(model_.layers.size(), strips.size(), [&](size_t layer, size_t strip, unsigned thread) {
    advance(Crew(thread), layer, strips[strip]);
  });
}

void Forward::advance(const Crew& crew, size_t layer, const Batch& batch) {
  if (layer > 0) finish(crew, layer - 1, batch);
  norm(crew, model_.layers[layer].attention_norm, batch.rows(), true);
  project(crew, layer, batch, layer + 1 < model_.layers.size());
}

void Forward::finish(const Crew& crew, size_t index, const Batch& batch) {
  const Layer& layer = model_.layers[index];
  const Rows rows = batch.rows();
  attend(crew, index, batch);
  add_branch(crew, work_.attended, layer.output, layer.post_attention_norm, rows);
  norm(crew, layer.mlp_norm, rows, false);
  linear_.run_gated(crew, work_.normed, rows, layer, work_.mlp);
  add_branch(crew, work_.mlp, layer.down, layer.post_mlp_norm, rows);
}

void Forward::embed(std::span<const int32_t> token_ids) {
  each_row(Crew(threads_), {0, token_ids.size()}, [&](size_t t) {
    float* row = work_.hidden.row(t);
    const Matrix& table = model_.embedding;
    kernels_.dequantize(table.type, table.row(static_cast<size_t>(token_ids[t])), row, table.cols);
    for (size_t i = 0; i < table.cols; ++i) row[i] *= model_.embedding_scale;
  });
}

void Forward::compute_turns(const Batch& batch) {
  each_row(Crew(threads_), batch.rows(), [&](size_t t) {
    const auto position = static_cast<float>(batch.position(t));
    for (size_t rope = 0; rope < model_.ropes.size(); ++rope) {
      const std::vector<float>& frequencies = model_.ropes[rope].frequencies;
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = position * frequencies[i];  // rounded to float, as in training
        work_.turns[rope].cosines.row(t)[i] = static_cast<float>(std::cos(angle));
        work_.turns[rope].sines.row(t)[i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void Forward::project(const Crew& crew, size_t index, const Batch& batch, bool queries) {
  const Layer& layer = model_.layers[index];
  const Rows rows = batch.rows();
  const std::array products{
      Product{layer.k, work_.k.row(rows.first), work_.k.stride()},
      Product{.w = layer.v, .out = work_.v.row(rows.first), .out_stride = work_.v.stride(), .fine = true},
      Product{layer.q, work_.q.row(rows.first), work_.q.stride()}};
  linear_.run(crew, work_.normed, rows, std::span(products).first(queries ? 3 : 2));
  for (const Batch::Run& sequence : batch.sequences) {
    each_row(crew, {sequence.first, sequence.count}, [&](size_t t) {
      turn_heads(work_.k.row(t), model_.num_kv_heads, layer.k_norm, layer.rope, t);
      if (queries) turn_heads(work_.q.row(t), model_.num_heads, layer.q_norm, layer.rope, t);
      const auto position = static_cast<size_t>(batch.position(t));
      const auto block = static_cast<size_t>(sequence.block_table[position / kBlockSize]);
      for (size_t head = 0; head < model_.num_kv_heads; ++head) {
        const size_t at = head * model_.head_dim;
        kernels_.write_kv({.layout = kv_.layout(),
                           .block = kv_.head(index, head) + block * kv_.block_bytes(),
                           .slot = position % kBlockSize,
                           .key = work_.k.row(t) + at,
                           .value = work_.v.row(t) + at});
      }
    });
  }
}

void Forward::project_queries(const Crew& crew, size_t index, const Batch& batch) {
  const Layer& layer = model_.layers[index];
  const std::array products{Product{layer.q, work_.q.row(batch.first), work_.q.stride()}};
  linear_.run(crew, work_.normed, batch.rows(), products);
  each_row(crew, batch.rows(), [&](size_t t) {
    turn_heads(work_.q.row(t), model_.num_heads, layer.q_norm, layer.rope, t);
  });
}

void Forward::attend(const Crew& crew, size_t index, const Batch& batch) {
  const Layer& layer = model_.layers[index];
  crew.run(batch.tiles.size() * model_.num_kv_heads, 1, [&](size_t item, size_t, unsigned thread) {
    const Batch::Run& tile = batch.tiles[item / model_.num_kv_heads];
    const size_t kv_head = item % model_.num_kv_heads, at = kv_head * model_.group() * model_.head_dim;
    kernels_.attention({.q = work_.q.row(tile.first) + at,
                        .q_stride = work_.q.stride(),
                        .out = work_.attended.floats.row(tile.first) + at,
                        .out_stride = work_.attended.floats.stride(),
                        .tokens = tile.count,
                        .group = model_.group(),
                        .positions = &batch.position(tile.first),
                        .window = layer.window,
                        .scale = layer.attention_scale,
                        .layout = kv_.layout(),
                        .kv = kv_.head(index, kv_head),
                        .block_table = tile.block_table,
                        .block_stride = kv_.block_bytes(),
                        .scratch = work_.scratch[thread].attention.data()});
  });
  if (!model_.int8()) return;
  each_row(crew, batch.rows(), [&](size_t t) { linear_.prepare(work_.attended, t, model_.q_size(), false); });
}

// Moves the given rows (ascending) of the residual stream and of its norm to the front.
void Forward::keep_rows(std::span<const int32_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Activations* a : {&work_.hidden, &work_.normed.floats}) {
      std::copy_n(a->row(static_cast<size_t>(rows[i])), model_.hidden_size(), a->row(i));
    }
    linear_.prepare(work_.normed, i, model_.hidden_size(), false);
  }
}

void Forward::set_tiles(Batch& batch) const {
  const size_t most = attention_tile(model_);
  for (const Batch::Run& sequence : batch.sequences) {
    for (size_t done = 0; done < sequence.count; done += most) {
      batch.tiles.push_back({sequence.first + done, std::min(most, sequence.count - done), sequence.block_table});
    }
  }
  // So no thread is left with a costly one at the end.
  std::stable_sort(batch.tiles.begin(), batch.tiles.end(), [&](const Batch::Run& a, const Batch::Run& b) {
    return batch.position(a.first) > batch.position(b.first);
  });
}

void Forward::norm(const Crew& crew, const std::vector<float>& weight, Rows rows, bool fine) {
  const Operand& out = work_.normed;
  each_row(crew, rows, [&](size_t t) {
    kernels_.rms_norm(work_.hidden.row(t), weight.data(), model_.norm_eps, out.floats.row(t), weight.size());
    linear_.prepare(out, t, weight.size(), fine);
  });
}

// Norm (where there is one) and rotary position of one token's heads.
void Forward::turn_heads(float* row, size_t heads, const std::vector<float>& head_norm, size_t rope, size_t turn_row) {
  const Workspace::Turns& turns = work_.turns[rope];
  for (size_t head = 0; head < heads; ++head, row += model_.head_dim) {
    if (!head_norm.empty()) kernels_.rms_norm(row, head_norm.data(), model_.norm_eps, row, model_.head_dim);
    kernels_.rotate(row, turns.cosines.row(turn_row), turns.sines.row(turn_row),
                    model_.ropes[rope].frequencies.size(), model_.ropes[rope].interleaved);
  }
}

// hidden += post_norm(x · wᵀ)
void Forward::add_branch(const Crew& crew, const Operand& x, const Matrix& w, const std::vector<float>& post_norm,
                         Rows rows) {
  const bool direct = post_norm.empty();
  const Activations& out = direct ? work_.hidden : work_.branch;
  const std::array products{Product{w, out.row(rows.first), out.stride(), direct}};
  linear_.run(crew, x, rows, products);
  if (direct) return;
  each_row(crew, rows, [&](size_t t) {
    float* branch = work_.branch.row(t);
    float* hidden = work_.hidden.row(t);
    kernels_.rms_norm(branch, post_norm.data(), model_.norm_eps, branch, post_norm.size());
    for (size_t i = 0; i < post_norm.size(); ++i) hidden[i] += branch[i];
  });
}

}  // namespace foreword
