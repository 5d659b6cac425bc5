// Memory that a forward pass works in, kept from step to step.
#pragma once

#include "foreword/kernels.h"
#include "foreword/model.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace foreword {

// Plain numbers on a cache-line boundary, zero when new. Grows, and then forgets what it held.
template <typename T>
class Buffer {
 public:
  void reserve(size_t count) {
    if (count <= size_) return;
    data_.reset();
    size_ = 0;
    data_.reset(static_cast<T*>(::operator new(count * sizeof(T), kAlignment)));
    std::memset(static_cast<void*>(data_.get()), 0, count * sizeof(T));
    size_ = count;
  }
  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
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
  Buffer<float> buffer_;
  size_t stride_ = 0;
};

// The same as Kernels::quantize leaves it.
class Quantised {
 public:
  void reserve(size_t rows, size_t width) {
    groups_per_row_ = groups_of(width);
    values_.reserve(rows * stride());
    groups_.reserve(rows * groups_per_row_);
  }
  int8_t* row(size_t i) const { return values_.data() + i * stride(); }
  GroupScale* groups(size_t i) const { return groups_.data() + i * groups_per_row_; }
  size_t groups_per_row() const { return groups_per_row_; }
  size_t stride() const { return groups_per_row_ * kGroup; }

 private:
  Buffer<int8_t> values_;
  Buffer<GroupScale> groups_;
  size_t groups_per_row_ = 0;
};

// What linear layers read: floats, or, where compute is int8, what they were quantised to, and for fine products what
// that left of them, quantised in turn.
struct Operand {
  Activations floats;
  Quantised integers, rest;
};

struct Workspace {
  // Room for `tokens` in one step on `threads`, the logits of `wanted` of them included. Throws std::bad_alloc.
  void reserve(const Model& model, size_t tokens, size_t wanted, unsigned threads);

  Activations hidden;  // the residual stream
  Activations q, k, v;
  Operand normed, attended, mlp;
  Activations branch;  // a branch's output where a norm follows it

  struct Turns {
    Activations cosines, sines;
  };
  std::vector<Turns> turns;  // one for each of Model::ropes

  struct Scratch {
    Buffer<float> weights;    // dequantised
    Buffer<float> gate, up;   // a panel's part of the MLP
    Buffer<float> attention;  // running sums
  };
  std::vector<Scratch> scratch;  // one for each thread

  Activations logits;
};

// Tokens that one call of the attention kernel takes: as many as keep its sums in the first-level cache.
size_t attention_tile(const Model& model);

// Rows of logits that are computed before they are handed out.
size_t logit_rows(const Model& model);

}  // namespace foreword
