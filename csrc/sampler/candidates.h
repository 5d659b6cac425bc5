// Candidates for a draw, and what removes some of them. They stay in the order of ids throughout.
#pragma once

#include <cstddef>
#include <vector>

#include "foreword/sampler.h"
#include "row.h"

namespace foreword::sampler {

// The order of likelihood: higher logit first, then lower id.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Every logit >= floor becomes a candidate.
void collect(Row row, float floor, std::vector<Candidate>& candidates);

// The k likeliest of those (k >= 1), in one pass that holds at most 2k + 512 at a time.
void collect_best(Row row, float floor, size_t k, SamplerScratch& scratch);

// Fills in the weights and returns their sum.
double weigh_candidates(const Weigh& weigh, std::vector<Candidate>& candidates);

// Keeps the fewest likeliest candidates whose weights add up to `target`, and returns the sum of what is kept.
double keep_nucleus(double target, SamplerScratch& scratch);

}  // namespace foreword::sampler
