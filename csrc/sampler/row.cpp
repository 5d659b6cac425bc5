#include "row.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace foreword::sampler {

size_t index_of(Row row, int32_t token_id) {
  if (token_id < 0 || static_cast<size_t>(token_id) >= row.size()) {
    throw std::out_of_range("token id " + std::to_string(token_id) + " is outside the vocabulary of " +
                            std::to_string(row.size()));
  }
  return static_cast<size_t>(token_id);
}

float max_logit(Row row) {
  Block best;
  for (Float4& part : best.part) part = splat(-kInfinity);
  for_each_block(row, [&](size_t, const Block& block) {
    for (size_t p = 0; p < 4; ++p) best.part[p] = max(block.part[p], best.part[p]);
  });
  const Float4 all = max(max(best.part[0], best.part[1]), max(best.part[2], best.part[3]));
  return std::max(std::max(all[0], all[1]), std::max(all[2], all[3]));
}

size_t find_first(Row row, float value) {
  const Float4 wanted = splat(value);
  size_t i = 0;
  for (; i + kBlock <= row.size(); i += kBlock) {
    Block block;
    std::memcpy(&block, row.data() + i, sizeof block);
    const Int4 low = (block.part[0] == wanted) | (block.part[1] == wanted);
    const Int4 high = (block.part[2] == wanted) | (block.part[3] == wanted);
    if (any(low | high)) break;
  }
  while (i < row.size() && row[i] != value) ++i;
  return i;
}

size_t count_above(Row row, float value, bool or_equal) {
  const Float4 bound = splat(value);
  Int4 count = {};
  for_each_block(row, [&](size_t, const Block& block) {
    for (const Float4& part : block.part) count -= or_equal ? part >= bound : part > bound;  // a true lane is -1
  });
  return static_cast<size_t>(count[0]) + count[1] + count[2] + count[3];
}

double sum_weights(Row row, const Weigh& weigh, std::vector<double>& chunk_weights) {
  chunk_weights.clear();
  double total = 0.0;
  for (size_t start = 0; start < row.size(); start += kChunk) {
    Float4 sum = {};
    for_each_block(row.subspan(start, std::min(kChunk, row.size() - start)), [&](size_t, const Block& block) {
      sum += (weigh(block.part[0]) + weigh(block.part[1])) + (weigh(block.part[2]) + weigh(block.part[3]));
    });
    chunk_weights.push_back((double{sum[0]} + sum[1]) + (double{sum[2]} + sum[3]));
    total += chunk_weights.back();
  }
  return total;
}

size_t find_cumulative(Row row, const Weigh& weigh, std::span<const double> chunk_weights, double target) {
  size_t start = 0;
  double before = 0.0;
  for (size_t chunk = 0; chunk < chunk_weights.size(); ++chunk) {
    if (chunk_weights[chunk] <= 0.0) continue;
    start = chunk * kChunk;
    if (before + chunk_weights[chunk] > target) break;
    before += chunk_weights[chunk];
  }
  // Where rounding carries past the end of the chunk, its last token of any weight is the one.
  size_t found = start;
  for_each_block(row.subspan(start, std::min(kChunk, row.size() - start)), [&](size_t i, const Block& block) {
    for (size_t lane = 0; lane < kBlock && before <= target; ++lane) {
      const float weight = weigh(splat(block[lane]))[0];
      if (weight > 0.0f) found = start + i + lane;
      before += weight;
    }
  });
  return found;
}

}  // namespace foreword::sampler
