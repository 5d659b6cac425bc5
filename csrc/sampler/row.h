// Passes over a whole row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vector.h"

namespace foreword::sampler {

using Row = std::span<const float>;

// `token_id` as an index into `row`; throws std::out_of_range where there is no such id.
size_t index_of(Row row, int32_t token_id);

// The highest logit, NaN aside; -inf where there is none.
float max_logit(Row row);

// The first index that holds `value`; the row's size where none does.
size_t find_first(Row row, float value);

// How many logits are > value, or >= value with `or_equal`.
size_t count_above(Row row, float value, bool or_equal);

// Sum of the row's weights; `chunk_weights` gets the sums over runs of kChunk logits.
double sum_weights(Row row, const Weigh& weigh, std::vector<double>& chunk_weights);
inline constexpr size_t kChunk = 256;

// The first index at which the running sum of weights exceeds `target`, with the `chunk_weights` of `sum_weights`.
size_t find_cumulative(Row row, const Weigh& weigh, std::span<const double> chunk_weights, double target);

}  // namespace foreword::sampler
