// Memory that a forward pass works in, kept from step to step.
#pragma once

#include "foreword/kernels.h"
#include "foreword/model.h"

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace foreword {

// Floats on a cache-line boundary, zero when new. Grows, and then forgets what it held.
class Buffer {
 public:
  void reserve(size_t floats);
  float* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

// A row for each token, padded to a multiple of kLanes with zeros that nothing writes to, so that kernels need no tails.
// The width never changes.
class Activations {
 public:
  void reserve(size_t rows, size_t width) {
    stride_ = round_up(width, kLanes);
    buffer_.reserve(rows * stride_);
  }
  float* row(size_t i) const { return buffer_.data() + i * stride_; }
  size_t stride() const { return stride_; }

 private:
  Buffer buffer_;
  size_t stride_ = 0;
};

struct Workspace {
  // Room for `tokens` in one step on `threads`. Throws std::bad_alloc.
  void reserve(const Model& model, size_t tokens, unsigned threads);

  Activations hidden;  // the residual stream
  Activations normed, q, k, v, attended, mlp;
  Activations branch;  // a branch's output where a norm follows it

  struct Turns {
    Activations cosines, sines;
  };
  std::vector<Turns> turns;  // one for each of Model::ropes

  struct Scratch {
    Buffer weights;    // dequantised
    Buffer up;         // a panel's part of the MLP
    Buffer attention;  // running sums
  };
  std::vector<Scratch> scratch;  // one for each thread

  Activations logits;
};

// Tokens that one call of the attention kernel takes: as many as keep its sums in the first-level cache.
size_t attention_tile(const Model& model);

// Rows of logits that are computed before they are handed out.
size_t logit_rows(const Model& model);

}  // namespace foreword
