#include "forward.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace foreword {
namespace {

constexpr size_t kTokenGrain = 8;  // tokens that a thread takes at a time, where a token costs little

}  // namespace

Batch all_rows(const Step& step) {
  Batch batch;
  batch.positions.reserve(step.token_ids.size());
  const int32_t* table = step.block_tables.data();
  for (size_t s = 0; s < step.lengths.size(); ++s) {
    batch.sequences.push_back({batch.rows(), static_cast<size_t>(step.lengths[s]), table});
    for (int32_t i = 0; i < step.lengths[s]; ++i) batch.positions.push_back(step.starts[s] + i);
    table += step.table_lengths[s];
  }
  return batch;
}

Batch wanted_rows(const Step& step, const Batch& all) {
  Batch wanted;
  auto row = step.logit_rows.begin();
  for (const Batch::Sequence& sequence : all.sequences) {
    const size_t first = wanted.rows();
    for (; row != step.logit_rows.end() && static_cast<size_t>(*row) < sequence.first + sequence.count; ++row) {
      wanted.positions.push_back(all.positions[static_cast<size_t>(*row)]);
    }
    if (wanted.rows() > first) wanted.sequences.push_back({first, wanted.rows() - first, sequence.block_table});
  }
  return wanted;
}

Forward::Forward(const Model& model, const Kernels& kernels, ThreadPool& threads, KVPool& kv, Workspace& work)
    : model_(model),
      kernels_(kernels),
      threads_(threads),
      kv_(kv),
      work_(work),
      linear_(model, kernels, threads, work) {}

void Forward::run(const Step& step) {
  const Batch all = all_rows(step), wanted = wanted_rows(step, all);
  embed(step.token_ids);
  compute_turns(all);
  for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
    norm(work_.hidden, model_.layers[layer].attention_norm, work_.normed, all.rows(), true);
    // Nothing reads the last layer's output but the logits: the other tokens are done with their keys and values.
    const bool last = layer + 1 == model_.layers.size();
    project(layer, all, !last);
    if (last) {
      if (wanted.rows() == 0) return;
      keep_rows(step.logit_rows);
      compute_turns(wanted);
      project_queries(layer, wanted.rows());
    }
    const Batch& batch = last ? wanted : all;
    attend(layer, batch);
    mlp(layer, batch.rows());
  }
  norm(work_.hidden, model_.output_norm, work_.normed, wanted.rows(), true);
}

void Forward::embed(std::span<const int32_t> token_ids) {
  threads_.run(token_ids.size(), kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t t = begin; t < end; ++t) {
      float* row = work_.hidden.row(t);
      const Matrix& table = model_.embedding;
      kernels_.dequantize(table.type, table.row(static_cast<size_t>(token_ids[t])), row, table.cols);
      for (size_t i = 0; i < table.cols; ++i) row[i] *= model_.embedding_scale;
    }
  });
}

void Forward::compute_turns(const Batch& batch) {
  threads_.run(batch.rows(), kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t rope = 0; rope < model_.ropes.size(); ++rope) {
      const std::vector<float>& frequencies = model_.ropes[rope].frequencies;
      for (size_t t = begin; t < end; ++t) {
        const auto position = static_cast<float>(batch.positions[t]);
        for (size_t i = 0; i < frequencies.size(); ++i) {
          const double angle = position * frequencies[i];  // rounded to float, as in training
          work_.turns[rope].cosines.row(t)[i] = static_cast<float>(std::cos(angle));
          work_.turns[rope].sines.row(t)[i] = static_cast<float>(std::sin(angle));
        }
      }
    }
  });
}

void Forward::project(size_t index, const Batch& batch, bool queries) {
  const Layer& layer = model_.layers[index];
  const std::array products{Product{layer.k, work_.k.row(0), work_.k.stride()},
                            Product{.w = layer.v, .out = work_.v.row(0), .out_stride = work_.v.stride(), .fine = true},
                            Product{layer.q, work_.q.row(0), work_.q.stride()}};
  linear_.run(work_.normed, 0, batch.rows(), std::span(products).first(queries ? 3 : 2));
  for (const Batch::Sequence& sequence : batch.sequences) {
    threads_.run(sequence.count, kTokenGrain, [&](size_t begin, size_t end, unsigned) {
      for (size_t t = sequence.first + begin; t < sequence.first + end; ++t) {
        turn_heads(work_.k.row(t), model_.num_kv_heads, layer.k_norm, layer.rope, t);
        if (queries) turn_heads(work_.q.row(t), model_.num_heads, layer.q_norm, layer.rope, t);
        const auto position = static_cast<size_t>(batch.positions[t]);
        const auto block = static_cast<size_t>(sequence.block_table[position / kBlockSize]);
        for (size_t head = 0; head < model_.num_kv_heads; ++head) {
          const size_t at = head * model_.head_dim;
          kernels_.write_kv({.layout = kv_.layout(),
                             .block = kv_.head(index, head) + block * kv_.block_bytes(),
                             .slot = position % kBlockSize,
                             .key = work_.k.row(t) + at,
                             .value = work_.v.row(t) + at});
        }
      }
    });
  }
}

void Forward::project_queries(size_t index, size_t rows) {
  const Layer& layer = model_.layers[index];
  const std::array products{Product{layer.q, work_.q.row(0), work_.q.stride()}};
  linear_.run(work_.normed, 0, rows, products);
  threads_.run(rows, kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t t = begin; t < end; ++t) turn_heads(work_.q.row(t), model_.num_heads, layer.q_norm, layer.rope, t);
  });
}

void Forward::attend(size_t index, const Batch& batch) {
  const Layer& layer = model_.layers[index];
  const std::vector<Tile> work = tiles(batch);
  threads_.run(work.size() * model_.num_kv_heads, 1, [&](size_t item, size_t, unsigned thread) {
    const Tile& tile = work[item / model_.num_kv_heads];
    const size_t kv_head = item % model_.num_kv_heads, at = kv_head * model_.group() * model_.head_dim;
    kernels_.attention({.q = work_.q.row(tile.first) + at,
                        .q_stride = work_.q.stride(),
                        .out = work_.attended.floats.row(tile.first) + at,
                        .out_stride = work_.attended.floats.stride(),
                        .tokens = tile.count,
                        .group = model_.group(),
                        .positions = batch.positions.data() + tile.first,
                        .window = layer.window,
                        .scale = layer.attention_scale,
                        .layout = kv_.layout(),
                        .kv = kv_.head(index, kv_head),
                        .block_table = tile.block_table,
                        .block_stride = kv_.block_bytes(),
                        .scratch = work_.scratch[thread].attention.data()});
  });
  if (model_.int8()) {
    threads_.run(batch.rows(), kTokenGrain, [&](size_t begin, size_t end, unsigned) {
      for (size_t t = begin; t < end; ++t) linear_.prepare(work_.attended, t, model_.q_size(), false);
    });
  }
  add_branch(work_.attended, layer.output, layer.post_attention_norm, batch.rows());
}

void Forward::mlp(size_t index, size_t rows) {
  const Layer& layer = model_.layers[index];
  norm(work_.hidden, layer.mlp_norm, work_.normed, rows, false);
  linear_.run_gated(work_.normed, rows, layer, work_.mlp);
  add_branch(work_.mlp, layer.down, layer.post_mlp_norm, rows);
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

// The costliest first, so that no thread is left with one at the end.
std::vector<Forward::Tile> Forward::tiles(const Batch& batch) const {
  const size_t most = attention_tile(model_);
  std::vector<Tile> all;
  for (const Batch::Sequence& sequence : batch.sequences) {
    for (size_t done = 0; done < sequence.count; done += most) {
      all.push_back({sequence.first + done, std::min(most, sequence.count - done), sequence.block_table});
    }
  }
  const auto cost = [&](const Tile& tile) { return batch.positions[tile.first]; };
  std::stable_sort(all.begin(), all.end(), [&](const Tile& a, const Tile& b) { return cost(a) > cost(b); });
  return all;
}

void Forward::norm(const Activations& in, const std::vector<float>& weight, const Operand& out, size_t rows,
                   bool fine) {
  threads_.run(rows, kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t t = begin; t < end; ++t) {
      kernels_.rms_norm(in.row(t), weight.data(), model_.norm_eps, out.floats.row(t), weight.size());
      linear_.prepare(out, t, weight.size(), fine);
    }
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
void Forward::add_branch(const Operand& x, const Matrix& w, const std::vector<float>& post_norm, size_t rows) {
  const bool direct = post_norm.empty();
  const Activations& out = direct ? work_.hidden : work_.branch;
  const std::array products{Product{w, out.row(0), out.stride(), direct}};
  linear_.run(x, 0, rows, products);
  if (direct) return;
  threads_.run(rows, kTokenGrain, [&](size_t begin, size_t end, unsigned) {
    for (size_t t = begin; t < end; ++t) {
      float* branch = work_.branch.row(t);
      float* hidden = work_.hidden.row(t);
      kernels_.rms_norm(branch, post_norm.data(), model_.norm_eps, branch, post_norm.size());
      for (size_t i = 0; i < post_norm.size(); ++i) hidden[i] += branch[i];
    }
  });
}

}  // namespace foreword
