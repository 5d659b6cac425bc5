#include "foreword/executor.h"

#include "forward.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

namespace foreword {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

bool within(int32_t value, size_t limit) { return value >= 0 && static_cast<size_t>(value) < limit; }

}  // namespace

Executor::Executor(Model model, const Kernels& kernels, KVDType kv_dtype, unsigned threads)
    : model_((model.check(), std::move(model))),
      kernels_(kernels),
      threads_(threads),
      kv_(model_.layers.size(), model_.num_kv_heads, kv_layout(kv_dtype, model_.head_dim)),
      workspace_(std::make_unique<Workspace>()),
      sampler_scratch_(threads_.size()) {}

Executor::~Executor() = default;

// Everything that is used as an index below here.
void Executor::check(const Step& step) const {
  for (const int32_t id : step.token_ids) require(within(id, model_.vocab_size()), "a token id is outside the vocabulary");
  for (const int32_t block : step.block_tables) require(within(block, kv_.num_blocks()), "no such block");
  for (const int32_t block : step.block_copies) require(within(block, kv_.num_blocks()), "no such block to copy");
  require(step.block_copies.size() % 2 == 0, "a block copy needs a source and a destination");
  require(step.starts.size() == step.lengths.size() && step.table_lengths.size() == step.lengths.size(),
          "lengths, starts and table_lengths differ in size");
  size_t tokens = 0, blocks = 0;
  for (size_t s = 0; s < step.lengths.size(); ++s) {
    require(step.lengths[s] > 0 && step.starts[s] >= 0 && step.table_lengths[s] >= 0, "a sequence is empty or negative");
    const int64_t end = int64_t{step.starts[s]} + step.lengths[s];
    require(end <= int64_t{step.table_lengths[s]} * static_cast<int64_t>(kBlockSize), "a block table is too short");
    tokens += static_cast<size_t>(step.lengths[s]);
    blocks += static_cast<size_t>(step.table_lengths[s]);
  }
  require(tokens == step.token_ids.size(), "lengths do not add up to the tokens");
  require(blocks == step.block_tables.size(), "table_lengths do not add up to the tables");
  for (size_t i = 0; i < step.logit_rows.size(); ++i) {
    require(within(step.logit_rows[i], tokens) && (i == 0 || step.logit_rows[i - 1] < step.logit_rows[i]),
            "logit_rows must ascend within the tokens");
  }
}

double Executor::run(const Step& step, const TakeLogits& take) {
  check(step);
  workspace_->reserve(model_, step.token_ids.size(), step.logit_rows.size(), threads_.size());
  for (size_t i = 0; i < step.block_copies.size(); i += 2) {
    std::memmove(kv_.block(static_cast<size_t>(step.block_copies[i + 1])),
                 kv_.block(static_cast<size_t>(step.block_copies[i])), kv_.block_bytes());
  }
  if (step.token_ids.empty()) return 0.0;
  const int32_t last = *std::max_element(step.block_tables.begin(), step.block_tables.end());
  const KVPool::Writing writing(kv_, static_cast<size_t>(last));
  Forward(model_, kernels_, threads_, kv_, *workspace_).run(step);

  const Linear linear(model_, kernels_, *workspace_);
  const Activations& logits = workspace_->logits;
  const size_t wanted = step.logit_rows.size(), at_once = logit_rows(model_);
  std::exception_ptr error;
  std::mutex error_lock;
  std::chrono::duration<double> taking{};
  for (size_t first = 0; first < wanted; first += at_once) {
    const size_t count = std::min(at_once, wanted - first);
    const std::array products{
        Product{.w = model_.output, .out = logits.row(0), .out_stride = logits.stride(), .fine = true}};
    linear.run(Crew(threads_), workspace_->normed, {first, count}, products);
    const auto began = std::chrono::steady_clock::now();
    threads_.run(count, 1, [&](size_t i, size_t, unsigned thread) {
      try {
        take(first + i, {logits.row(i), model_.vocab_size()}, thread);
      } catch (...) {
        const std::lock_guard held(error_lock);
        if (!error) error = std::current_exception();
      }
    });
    taking += std::chrono::steady_clock::now() - began;
  }
  if (error) std::rethrow_exception(error);
  return taking.count();
}

}  // namespace foreword
