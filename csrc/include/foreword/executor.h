// Runs a model over the tokens of a step. Plain C++; nothing of Python.
#pragma once

#include "foreword/kernels.h"
#include "foreword/kv_pool.h"
#include "foreword/model.h"
#include "foreword/sampler.h"
#include "foreword/threads.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace foreword {

// What to compute in one step: foreword.core.step.StepPlan, flattened. Sequences' tokens and tables stand one after the
// other.
struct Step {
  std::span<const int32_t> token_ids;      // of all sequences
  std::span<const int32_t> lengths;        // tokens of each sequence
  std::span<const int32_t> starts;         // position of each sequence's first token
  std::span<const int32_t> block_tables;   // of all sequences
  std::span<const int32_t> table_lengths;  // blocks in each sequence's table
  std::span<const int32_t> block_copies;   // source, destination, source, destination, ...
  std::span<const int32_t> logit_rows;     // indices into token_ids whose logits are wanted, ascending
};

// What is wanted of one of a step's sequences.
struct SequenceRequest {
  size_t sequence = 0;                 // index into Step::lengths
  SampleRequest sample;                // from the last token's logits, where there are draws
  std::span<const int32_t> score_ids;  // the token that follows the first, second, ... of the sequence's tokens
};

struct SequenceOutput {
  SampleResult sampled;
  std::vector<TokenLogprob> scores;  // one for each of score_ids
};

struct StepOutput {
  std::vector<SequenceOutput> sequences;  // one for each request
  double sampling_s = 0.0;                // what sampling and scoring took
};

struct Workspace;

class Executor {
 public:
  // Takes the logits of logit_rows[index]; called on any of the pool's threads, each index once. May change the
  // logits. May throw: the first error is thrown again once all are done.
  using TakeLogits = std::function<void(size_t index, std::span<float> logits, unsigned thread)>;

  // The model's matrices must stay readable for as long as the executor lives. Throws std::invalid_argument for a model
  // whose sizes do not fit each other, std::system_error where the threads cannot be had.
  Executor(Model model, const Kernels& kernels, KVDType kv_dtype, unsigned threads);
  ~Executor();

  const Model& model() const { return model_; }
  const Kernels& kernels() const { return kernels_; }
  unsigned num_threads() const { return threads_.size(); }
  KVPool& kv() { return kv_; }

  // Copies blocks, computes all tokens, writes their keys and values, and hands out the wanted logits.
  // Returns the seconds during which logits were being taken.
  // Throws std::invalid_argument, before anything is touched, for a step that names what does not exist.
  double run(const Step& step, const TakeLogits& take);

  // The same, and samples. `requests` ascend by sequence; step.logit_rows is not looked at.
  StepOutput run_and_sample(Step step, std::span<const SequenceRequest> requests);

 private:
  void check(const Step& step) const;

  Model model_;
  const Kernels& kernels_;
  ThreadPool threads_;
  KVPool kv_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<SamplerScratch> sampler_scratch_;  // one for each thread
};

}  // namespace foreword
