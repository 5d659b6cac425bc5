// One step's forward pass: from token ids to the last layer's output.
#pragma once

#include "foreword/executor.h"
#include "linear.h"
#include "workspace.h"

#include <vector>

namespace foreword {

// Tokens as rows of activations, each sequence's together.
struct Batch {
  struct Sequence {
    size_t first, count;  // rows
    const int32_t* block_table;
  };
  std::vector<Sequence> sequences;
  std::vector<int32_t> positions;  // of each row, ascending within a sequence

  size_t rows() const { return positions.size(); }
};

// All tokens of a step.
Batch all_rows(const Step& step);
// Those whose logits are wanted.
Batch wanted_rows(const Step& step, const Batch& all);

class Forward {
 public:
  Forward(const Model& model, const Kernels& kernels, ThreadPool& threads, KVPool& kv, Workspace& work);

  // Computes every token's keys and values, and leaves the final norm's output of the wanted rows in work.normed.
  void run(const Step& step);

 private:
  struct Tile {  // of one sequence's rows, for the attention kernel
    size_t first, count;
    const int32_t* block_table;
  };

  void embed(std::span<const int32_t> token_ids);
  void compute_turns(const Batch& batch);
  // Keys and values, written to the cache, and in the same phase queries, where they are wanted of all rows.
  void project(size_t layer, const Batch& batch, bool queries);
  void project_queries(size_t layer, size_t rows);
  void attend(size_t layer, const Batch& batch);
  void mlp(size_t layer, size_t rows);
  void keep_rows(std::span<const int32_t> rows);

  std::vector<Tile> tiles(const Batch& batch) const;
  // Leaves `out` ready for linear layers, fine ones among them or not.
  void norm(const Activations& in, const std::vector<float>& weight, const Operand& out, size_t rows, bool fine);
  void turn_heads(float* row, size_t heads, const std::vector<float>& head_norm, size_t rope, size_t turn_row);
  void add_branch(const Operand& x, const Matrix& w, const std::vector<float>& post_norm, size_t rows);

  const Model& model_;
  const Kernels& kernels_;
  ThreadPool& threads_;
  KVPool& kv_;
  Workspace& work_;
  Linear linear_;
};

}  // namespace foreword
