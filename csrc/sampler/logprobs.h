// Log-probabilities of single tokens under a row of logits.
#pragma once

#include <utility>
#include <vector>

#include "foreword/sampler.h"
#include "row.h"

namespace foreword::sampler {

// What all tokens of a row share, computed once: the log of the normaliser and the likeliest tokens.
class RowLogprobs {
 public:
  RowLogprobs(Row row, int32_t top, SamplerScratch& scratch);

  // Throws std::out_of_range for an id outside the vocabulary.
  TokenLogprob of(int32_t token_id) const;

 private:
  float logprob(float logit) const;

  Row row_;
  double log_total_;
  std::vector<std::pair<int32_t, float>> top_;
};

}  // namespace foreword::sampler
