// Changes to single logits before a draw: bias, bans, penalties.
#pragma once

#include <span>

#include "foreword/sampler.h"

namespace foreword::sampler {

// Applies a request's bias, bans and penalties to `logits` for as long as it lives, then takes them back. They touch few
// of the logits, so this is cheaper than a copy of the row.
class Edits {
 public:
  // Throws std::out_of_range for an id outside the vocabulary, with nothing changed.
  Edits(std::span<float> logits, const SampleRequest& request, SamplerScratch& scratch);
  ~Edits();
  Edits(const Edits&) = delete;
  Edits& operator=(const Edits&) = delete;

 private:
  void set(int32_t id, float value);
  void penalise(const SampleRequest& request);

  std::span<float> logits_;
  SamplerScratch& scratch_;
};

}  // namespace foreword::sampler
