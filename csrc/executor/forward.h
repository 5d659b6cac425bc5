// One step's forward pass: from token ids to the last layer's output.
//
// Few tokens: all threads share each phase of a layer. Many: each thread takes a strip of tokens at a time through a whole
// layer, so that what one phase leaves is in the thread's own cache for the next, and nobody waits for anybody but for
// the keys and values of the tokens before. Both ways run the same code, with another Crew.
#pragma once

#include "foreword/executor.h"
#include "linear.h"
#include "workspace.h"

#include <vector>

namespace foreword {

// Tokens of a step as rows of activations, each sequence's together.
struct Batch {
  struct Run {  // of a sequence's rows
    size_t first, count;
    const int32_t* block_table;
  };
  size_t first = 0;
  std::vector<int32_t> positions;  // of each row, ascending within a sequence
  std::vector<Run> sequences;
  std::vector<Run> tiles;  // the same rows as the attention kernel takes them, costliest first

  Rows rows() const { return {first, positions.size()}; }
  size_t end() const { return first + positions.size(); }
  const int32_t& position(size_t row) const { return positions[row - first]; }
};

// All tokens of a step.
Batch all_rows(const Step& step);
// Those whose logits are wanted.
Batch wanted_rows(const Step& step, const Batch& all);
// The batch in strips of at most `most` rows, a multiple of kBlockSize. No two write to the same block.
std::vector<Batch> cut(const Batch& batch, size_t most);

class Forward {
 public:
  Forward(const Model& model, const Kernels& kernels, ThreadPool& threads, KVPool& kv, Workspace& work);

  // Computes every token's keys and values, and leaves the final norm's output of the wanted rows in work.normed.
  void run(const Step& step);

 private:
  void embed(std::span<const int32_t> token_ids);
  void compute_turns(const Batch& batch);
  void run_strips(std::vector<Batch> strips);
  // To the keys and values of a layer: all of the layer before, and of this one what they need.
  void advance(const Crew& crew, size_t layer, const Batch& batch);
  // Keys and values, written to the cache, and in the same phase queries, where they are wanted of all rows.
  void project(const Crew& crew, size_t layer, const Batch& batch, bool queries);
  void project_queries(const Crew& crew, size_t layer, const Batch& batch);
  // From the queries to the end of a layer.
  void finish(const Crew& crew, size_t layer, const Batch& batch);
  void attend(const Crew& crew, size_t layer, const Batch& batch);
  void keep_rows(std::span<const int32_t> rows);

  void set_tiles(Batch& batch) const;
  // Of the residual stream, into work_.normed: ready for linear layers, fine ones among them or not.
  void norm(const Crew& crew, const std::vector<float>& weight, Rows rows, bool fine);
  void turn_heads(float* row, size_t heads, const std::vector<float>& head_norm, size_t rope, size_t turn_row);
  void add_branch(const Crew& crew, const Operand& x, const Matrix& w, const std::vector<float>& post_norm, Rows rows);

  const Model& model_;
  const Kernels& kernels_;
  ThreadPool& threads_;
  KVPool& kv_;
  Workspace& work_;
  const Linear linear_;
};

}  // namespace foreword
