// Products of activations with stored matrices, spread over threads.
#pragma once

#include "foreword/kernels.h"
#include "foreword/model.h"
#include "foreword/threads.h"
#include "workspace.h"

#include <span>

namespace foreword {

// out (+)= x · wᵀ
struct Product {
  const Matrix& w;
  float* out;
  size_t out_stride;
  bool accumulate = false;
};

// Weight rows in a unit of work: dequantised, they stay in the second-level cache.
size_t panel_rows(size_t cols);

class Linear {
 public:
  Linear(const Kernels& kernels, ThreadPool& threads, Workspace& work)
      : kernels_(kernels), threads_(threads), work_(work) {}

  // All products of the same x, `tokens` rows.
  void run(const float* x, size_t x_stride, size_t tokens, std::span<const Product> products) const;

  // out = activation(x · gateᵀ) * (x · upᵀ)
  void run_gated(const float* x, size_t x_stride, size_t tokens, const Layer& layer, Activations& out) const;

 private:
  // Weight rows [first, first + rows) for all tokens; `out` is the first of these outputs.
  void panel(const float* x, size_t x_stride, size_t tokens, const Matrix& w, size_t first, size_t rows, float* out,
             size_t out_stride, bool accumulate, unsigned thread) const;

  const Kernels& kernels_;
  ThreadPool& threads_;
  Workspace& work_;
};

}  // namespace foreword
