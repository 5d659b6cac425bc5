#include "logprobs.h"

#include <algorithm>
#include <cmath>

#include "candidates.h"

namespace foreword::sampler {

RowLogprobs::RowLogprobs(Row row, int32_t top, SamplerScratch& scratch) : row_(row) {
  const Weigh weigh(max_logit(row), 1.0f);
  log_total_ = weigh.max + std::log(sum_weights(row, weigh, scratch.chunk_weights));
  if (top <= 0) return;
  collect_best(row, -FLT_MAX, std::min<size_t>(top, row.size()), scratch);
  std::sort(scratch.candidates.begin(), scratch.candidates.end(), likelier);
  for (const Candidate& c : scratch.candidates) top_.emplace_back(c.id, logprob(c.logit));
}

float RowLogprobs::logprob(float logit) const {
  const double value = std::min(logit, FLT_MAX) - log_total_;
  return value > kMinLogprob ? static_cast<float>(value) : kMinLogprob;  // the latter for NaN as well
}

TokenLogprob RowLogprobs::of(int32_t token_id) const {
  const size_t index = index_of(row_, token_id);
  const float logit = std::isnan(row_[index]) ? -kInfinity : row_[index];
  const size_t likelier_tokens =
      count_above(row_.first(index), logit, true) + count_above(row_.subspan(index + 1), logit, false);
  return {token_id, logprob(logit), static_cast<int32_t>(likelier_tokens + 1), top_};
}

}  // namespace foreword::sampler

namespace foreword {

TokenLogprob score(std::span<const float> logits, int32_t token_id, int32_t top, SamplerScratch& scratch) {
  return sampler::RowLogprobs(logits, top, scratch).of(token_id);
}

}  // namespace foreword
