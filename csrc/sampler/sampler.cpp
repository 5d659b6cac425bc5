#include "foreword/sampler.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "candidates.h"
#include "edits.h"
#include "foreword/random.h"
#include "logprobs.h"
#include "row.h"

namespace foreword {

namespace {

using namespace sampler;

// Leaves in `scratch.candidates` what min_p, top_k and top_p keep, with weights, and returns the sum of these.
double truncate(Row logits, const SamplingSpec& spec, const Weigh& weigh, SamplerScratch& scratch) {
  auto& candidates = scratch.candidates;
  const auto logit_at = [&](double log_weight) {
    const double logit = weigh.max + log_weight * spec.temperature;
    return static_cast<float>(std::clamp<double>(logit, -FLT_MAX, weigh.max));
  };
  if (spec.top_k > 0 || spec.min_p > 0.0f) {
    const float floor = spec.min_p > 0.0f ? logit_at(std::log(spec.min_p)) : -FLT_MAX;
    if (spec.top_k > 0) {
      collect_best(logits, floor, std::min<size_t>(spec.top_k, logits.size()), scratch);
    } else {
      collect(logits, floor, candidates);
    }
    const double total = weigh_candidates(weigh, candidates);
    return spec.top_p < 1.0f ? keep_nucleus(spec.top_p * total, scratch) : total;
  }
  // top_p alone. All tokens that weigh less than (1 - top_p)·total / vocabulary weigh less than (1 - top_p)·total
  // together, so the nucleus needs none of them; the bound is lowered by 1 % to stand clear of rounding.
  const double total = sum_weights(logits, weigh, scratch.chunk_weights);
  const double negligible = (1.0 - spec.top_p) * total / static_cast<double>(logits.size());
  collect(logits, logit_at(std::log(0.99 * negligible)), candidates);
  weigh_candidates(weigh, candidates);
  return keep_nucleus(spec.top_p * total, scratch);
}

// The first candidate at which the running sum of weights exceeds `target`.
int32_t find_candidate(const std::vector<Candidate>& candidates, double target) {
  int32_t found = candidates.front().id;
  double before = 0.0;
  for (const Candidate& c : candidates) {
    if (c.weight > 0.0f) found = c.id;
    before += c.weight;
    if (before > target) break;
  }
  return found;
}

void draw(Row logits, const SampleRequest& request, SamplerScratch& scratch, std::vector<int32_t>& token_ids) {
  const SamplingSpec& spec = *request.spec;
  const float highest = max_logit(logits);
  if (highest == -kInfinity) {
    throw std::domain_error("no token can be sampled: every logit is NaN, -inf or banned");
  }
  if (spec.temperature <= 0.0f) {
    token_ids.assign(request.draws.size(), static_cast<int32_t>(find_first(logits, highest)));
    return;
  }
  const Weigh weigh(highest, spec.temperature);
  const bool truncated = spec.top_k > 0 || spec.top_p < 1.0f || spec.min_p > 0.0f;
  const double total =
      truncated ? truncate(logits, spec, weigh, scratch) : sum_weights(logits, weigh, scratch.chunk_weights);
  for (const int32_t completion : request.draws) {
    const double target = uniform(request.seed, completion, request.position) * total;
    token_ids.push_back(truncated
                            ? find_candidate(scratch.candidates, target)
                            : static_cast<int32_t>(find_cumulative(logits, weigh, scratch.chunk_weights, target)));
  }
}

}  // namespace

SampleResult sample(std::span<float> logits, const SampleRequest& request, SamplerScratch& scratch) {
  SampleResult result;
  {
    const Edits edits(logits, request, scratch);
    draw(logits, request, scratch, result.token_ids);
  }
  if (request.spec->logprobs >= 0) {
    const RowLogprobs logprobs(logits, request.spec->logprobs, scratch);
    for (const int32_t token_id : result.token_ids) result.logprobs.push_back(logprobs.of(token_id));
  }
  return result;
}

}  // namespace foreword
