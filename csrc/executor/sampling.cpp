#include "foreword/executor.h"

#include <stdexcept>
#include <utility>

namespace foreword {
namespace {

// What a row of logits is for: a request's draws, or the score of one of its tokens, or both.
struct RowUse {
  size_t request;
  bool draws;
  int32_t score;  // index into score_ids; -1: none
};

}  // namespace

StepOutput Executor::run_and_sample(Step step, std::span<const SequenceRequest> requests) {
  std::vector<int32_t> rows;
  std::vector<RowUse> uses;
  std::vector<SequenceOutput> outputs(requests.size());
  size_t sequence = 0;
  int32_t first = 0;  // row of the sequence
  for (size_t r = 0; r < requests.size(); ++r) {
    const SequenceRequest& request = requests[r];
    if (request.sequence < sequence || request.sequence >= step.lengths.size()) {
      throw std::invalid_argument("requests must ascend within the sequences");
    }
    for (; sequence < request.sequence; ++sequence) first += step.lengths[sequence];
    const int32_t length = step.lengths[sequence];
    const auto scores = static_cast<int32_t>(request.score_ids.size());
    if (scores > length) throw std::invalid_argument("more tokens to score than tokens");
    outputs[r].scores.resize(request.score_ids.size());
    for (int32_t i = 0; i < length; ++i) {
      const RowUse use{r, i == length - 1 && !request.sample.draws.empty(), i < scores ? i : -1};
      if (!use.draws && use.score < 0) continue;
      rows.push_back(first + i);
      uses.push_back(use);
    }
  }

  step.logit_rows = rows;
  const double sampling_s = run(step, [&](size_t index, std::span<float> logits, unsigned thread) {
    const RowUse& use = uses[index];
    const SequenceRequest& request = requests[use.request];
    SamplerScratch& scratch = sampler_scratch_[thread];
    if (use.score >= 0) {
      const auto at = static_cast<size_t>(use.score);
      outputs[use.request].scores[at] =
          score(logits, request.score_ids[at], request.sample.spec->prompt_logprobs, scratch);
    }
    if (use.draws) outputs[use.request].sampled = sample(logits, request.sample, scratch);
  });
  return {std::move(outputs), sampling_s};
}

}  // namespace foreword
