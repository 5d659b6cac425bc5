// Choosing the next token from one row of logits, and the log-probabilities of tokens. No Python here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace foreword {

// How to draw: the fields of `foreword.core.params.SamplingParams` that matter here, with their meanings. One per
// request. The logits of a position pass, in this order: logit_bias, banned ids, penalties, temperature, min_p, top_k,
// top_p; each works on what the one before has left.
struct SamplingSpec {
  float temperature = 1.0f;         // 0: the highest logit, the lowest id on a tie
  int32_t top_k = 0;                // keep the k highest, lower ids first on a tie; 0: off
  float top_p = 1.0f;               // keep the fewest likeliest tokens whose probabilities reach this; 1: off
  float min_p = 0.0f;               // keep tokens at least this likely, relative to the likeliest; 0: off
  float presence_penalty = 0.0f;    // subtracted once from every token of the output
  float frequency_penalty = 0.0f;   // subtracted for each time a token is in the output
  float repetition_penalty = 1.0f;  // for tokens of prompt and output: divides positive logits, multiplies others
  std::vector<std::pair<int32_t, float>> logit_bias;  // added; an id given twice gets both
  int32_t logprobs = -1;            // alternatives to report for each sampled token; -1: report nothing
  int32_t prompt_logprobs = -1;     // the same for the prompt's tokens (`score`)
};

// What differs from one position to the next. Ids outside the vocabulary throw std::out_of_range.
struct SampleRequest {
  const SamplingSpec* spec = nullptr;
  uint64_t seed = 0;
  std::span<const int32_t> draws;    // completion indices: one token is drawn for each, independently
  uint64_t position = 0;             // of the token to be drawn
  std::span<const int32_t> history;  // known tokens, prompt first; read only where there are penalties
  size_t num_prompt_tokens = 0;      // how many of `history` are the prompt
  std::span<const int32_t> banned;   // ids that may not be drawn
};

// Of the model's own distribution: before bias, penalties and temperature. Log-probabilities are always finite:
// what is below kMinLogprob, or not a number, is reported as kMinLogprob.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0.0f;
  int32_t rank = 0;                             // 1: the likeliest; ties in the order of ids
  std::vector<std::pair<int32_t, float>> top;   // likeliest first
};
inline constexpr float kMinLogprob = -9999.0f;

struct SampleResult {
  std::vector<int32_t> token_ids;      // one for each draw
  std::vector<TokenLogprob> logprobs;  // likewise, where spec.logprobs >= 0
};

struct Candidate {
  float logit;
  int32_t id;
  float weight;  // probability, times a factor common to all candidates
};

// Buffers that live from call to call, so that a call allocates nothing large. One for each thread that samples.
struct SamplerScratch {
  std::vector<Candidate> candidates;              // what truncation left, by ascending id
  std::vector<Candidate> ranked;                  // a copy that selection may reorder
  std::vector<double> chunk_weights;              // sums of weights over runs of the vocabulary
  std::vector<int32_t> counts;                    // by token id; all zero between calls
  std::vector<std::pair<int32_t, float>> edits;   // logits changed for this call, with what they were
};

// Draws one token for each of `request.draws`. A draw is the inverse of the cumulative distribution, ids ascending, at
// `uniform(seed, draw, position)`: a function of its arguments only. NaN logits are never drawn. `logits` are edited
// while this runs and are as before when it returns.
//
// Throws std::domain_error where no token can be drawn (every logit is NaN, -inf or banned), std::out_of_range for an id
// outside the vocabulary.
SampleResult sample(std::span<float> logits, const SampleRequest& request, SamplerScratch& scratch);

// Log-probability and rank of `token_id` under `logits`, with the `top` likeliest tokens (-1 is read as 0).
// Throws std::out_of_range for an id outside the vocabulary.
TokenLogprob score(std::span<const float> logits, int32_t token_id, int32_t top, SamplerScratch& scratch);

}  // namespace foreword
