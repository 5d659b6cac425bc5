#include "candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace foreword::sampler {

namespace {

// Calls `f(id, logit)` for every logit that reaches `floor`, which `f` may raise on the way.
template <class F>
void for_each_above(Row row, const float& floor, F&& f) {
  for_each_block(row, [&](size_t start, const Block& block) {
    const Float4 bound = splat(floor);
    const Int4 low = (block.part[0] >= bound) | (block.part[1] >= bound);
    const Int4 high = (block.part[2] >= bound) | (block.part[3] >= bound);
    if (!any(low | high)) return;
    for (size_t lane = 0; lane < kBlock; ++lane) {
      if (block[lane] >= floor) f(static_cast<int32_t>(start + lane), block[lane]);
    }
  });
}

void drop_after(const Candidate& last, std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [&](const Candidate& c) { return likelier(last, c); });
}

// Keeps the k likeliest and returns the least likely of them.
Candidate keep_best(size_t k, SamplerScratch& scratch) {
  auto& ranked = scratch.ranked;
  ranked = scratch.candidates;
  std::nth_element(ranked.begin(), ranked.begin() + (k - 1), ranked.end(), likelier);
  const Candidate last = ranked[k - 1];
  drop_after(last, scratch.candidates);
  return last;
}

// Fills `ranked` with the candidates among which the running sum of weights, likeliest first, reaches `target`: those
// of one bin of a histogram over logits, or all. Returns what the likelier ones weigh.
double narrow(double target, SamplerScratch& scratch) {
  constexpr size_t kBins = 512;
  const auto& candidates = scratch.candidates;
  auto& ranked = scratch.ranked;
  const auto [least, most] = std::minmax_element(candidates.begin(), candidates.end(),
                                                 [](const auto& a, const auto& b) { return a.logit < b.logit; });
  const float low = least->logit;
  const float range = most->logit - low;
  if (!(range > 0.0f && range < kInfinity)) {
    ranked = candidates;
    return 0.0;
  }
  const auto bin_of = [&](const Candidate& c) { return static_cast<size_t>((c.logit - low) / range * (kBins - 1)); };
  std::array<double, kBins> weights = {};
  for (const Candidate& c : candidates) weights[bin_of(c)] += c.weight;
  double before = 0.0;
  size_t bin = kBins - 1;
  for (; bin > 0 && before + weights[bin] < target; --bin) before += weights[bin];
  ranked.clear();
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(ranked),
               [&](const Candidate& c) { return bin_of(c) == bin; });
  return before;
}

}  // namespace

void collect(Row row, float floor, std::vector<Candidate>& candidates) {
  candidates.clear();
  for_each_above(row, floor, [&](int32_t id, float logit) { candidates.push_back({logit, id, 0.0f}); });
}

void collect_best(Row row, float floor, size_t k, SamplerScratch& scratch) {
  auto& candidates = scratch.candidates;
  candidates.clear();
  const size_t room = 2 * k + 512;
  for_each_above(row, floor, [&](int32_t id, float logit) {
    candidates.push_back({logit, id, 0.0f});
    if (candidates.size() < room) return;
    // A later id loses a tie, so from here on only higher logits matter.
    floor = std::nextafter(keep_best(k, scratch).logit, kInfinity);
  });
  if (candidates.size() > k) keep_best(k, scratch);
}

double weigh_candidates(const Weigh& weigh, std::vector<Candidate>& candidates) {
  double total = 0.0;
  for (size_t i = 0; i < candidates.size(); i += 4) {
    const std::span four(candidates.data() + i, std::min<size_t>(4, candidates.size() - i));
    Float4 logits = {};
    for (size_t lane = 0; lane < four.size(); ++lane) logits[lane] = four[lane].logit;
    const Float4 weights = weigh(logits);
    for (size_t lane = 0; lane < four.size(); ++lane) {
      four[lane].weight = weights[lane];
      total += weights[lane];
    }
  }
  return total;
}

double keep_nucleus(double target, SamplerScratch& scratch) {
  auto& ranked = scratch.ranked;
  double kept = narrow(target, scratch);
  // Quickselect by weight instead of count: halve the range that holds the last candidate to keep.
  auto first = ranked.begin();
  auto end = ranked.end();
  while (end - first > 1) {
    const auto middle = first + (end - first) / 2;
    std::nth_element(first, middle, end, likelier);
    double upper = 0.0;
    for (auto c = first; c != middle; ++c) upper += c->weight;
    if (kept + upper >= target) {
      end = middle;
    } else {
      kept += upper;
      first = middle;
    }
  }
  drop_after(*first, scratch.candidates);
  return kept + first->weight;
}

}  // namespace foreword::sampler
