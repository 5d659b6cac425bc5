#include "edits.h"

#include <algorithm>
#include <ranges>

#include "row.h"

namespace foreword::sampler {

namespace {

bool penalised(const SamplingSpec& spec) {
  return spec.presence_penalty != 0.0f || spec.frequency_penalty != 0.0f || spec.repetition_penalty != 1.0f;
}

}  // namespace

Edits::Edits(std::span<float> logits, const SampleRequest& request, SamplerScratch& scratch)
    : logits_(logits), scratch_(scratch) {
  const SamplingSpec& spec = *request.spec;
  for (const auto& [id, bias] : spec.logit_bias) index_of(logits, id);
  for (const int32_t id : request.banned) index_of(logits, id);
  if (penalised(spec)) {
    for (const int32_t id : request.history) index_of(logits, id);
  }
  scratch_.edits.clear();
  for (const auto& [id, bias] : spec.logit_bias) set(id, logits_[id] + bias);
  for (const int32_t id : request.banned) set(id, -kInfinity);
  if (penalised(spec)) penalise(request);
}

Edits::~Edits() {
  // Last change first, so that an id that changed twice gets its first value back.
  for (const auto& [id, logit] : std::views::reverse(scratch_.edits)) logits_[id] = logit;
}

void Edits::set(int32_t id, float value) {
  scratch_.edits.emplace_back(id, logits_[id]);
  logits_[id] = value;
}

void Edits::penalise(const SampleRequest& request) {
  const SamplingSpec& spec = *request.spec;
  // 1 + occurrences in the output, for every token of the history that has not been penalised yet; else 0.
  auto& counts = scratch_.counts;
  if (counts.size() < logits_.size()) counts.resize(logits_.size());
  const size_t prompt = std::min(request.num_prompt_tokens, request.history.size());
  for (const int32_t id : request.history.first(prompt)) counts[id] = 1;
  for (const int32_t id : request.history.subspan(prompt)) counts[id] = std::max(counts[id], 1) + 1;
  for (const int32_t id : request.history) {
    if (counts[id] == 0) continue;
    const auto in_output = static_cast<float>(counts[id] - 1);
    counts[id] = 0;
    float logit = logits_[id];
    logit = logit > 0.0f ? logit / spec.repetition_penalty : logit * spec.repetition_penalty;
    if (in_output > 0.0f) logit -= spec.presence_penalty + spec.frequency_penalty * in_output;
    set(id, logit);
  }
}

}  // namespace foreword::sampler
