// Merging of neighbouring symbols, best pair first: the heart of both tokenisers.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "foreword/tokenizer.h"

namespace foreword {

// A run of bytes of the text that is one token so far. Merged symbols live on in their left one.
struct Symbol {
  size_t begin, length;  // length 0: merged away
  int32_t token;
  int32_t previous, next;  // indices, -1 at the ends
};

// What two neighbours would become; a lower cost goes first.
struct MergeOffer {
  double cost = 0;
  int32_t token = kNoToken;  // kNoToken: they do not merge
};

// Takes symbols off `symbols` until no pair is left that `offer(left, right)` would merge. Equal costs go
// from left to right. O(n log n).
template <typename Offer>
void merge_symbols(std::vector<Symbol>& symbols, Offer offer) {
  struct Candidate {
    double cost;
    int32_t left, right, token;
    size_t length;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the greatest first
      return cost != other.cost ? cost > other.cost : left > other.left;
    }
  };
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> queue(std::less<Candidate>{}, std::move(storage));

  const auto propose = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
    const MergeOffer found = offer(a, b);
    if (found.token != kNoToken) queue.push({found.cost, left, right, found.token, a.length + b.length});
  };

  for (size_t i = 1; i < symbols.size(); ++i) propose(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol &left = symbols[static_cast<size_t>(best.left)], &right = symbols[static_cast<size_t>(best.right)];
    // Symbols only grow or vanish, so the same two are still there if and only if the lengths still add up.
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
    left.length = best.length;
    left.token = best.token;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
}

// Appends a symbol to the chain.
inline void append_symbol(std::vector<Symbol>& symbols, size_t begin, size_t length, int32_t token) {
  const auto index = static_cast<int32_t>(symbols.size());
  if (index > 0) symbols.back().next = index;
  symbols.push_back({begin, length, token, index - 1, -1});
}

}  // namespace foreword
