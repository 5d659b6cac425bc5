// Products of activations with stored matrices, spread over threads.
#pragma once

#include "foreword/kernels.h"
#include "foreword/model.h"
#include "foreword/threads.h"
#include "workspace.h"

#include <span>

namespace foreword {

// Some rows of activations: a row is a token.
struct Rows {
  size_t first, count;
};

// out (+)= x · wᵀ
struct Product {
  const Matrix& w;
  float* out;  // of the first row
  size_t out_stride;
  bool accumulate = false;
  // Where compute is int8: the activations in sixteen bits, by a second product, of what the first left. It is for the
  // few matrices whose inputs' rounding matters most and which cost little: values and the output layer, which together
  // halve the loss of SmolLM2 (KL 0.0034 to 0.0017 nats) for 3 % of a prompt's multiplications.
  bool fine = false;
};

// Weight rows in a unit of work of float32: dequantised, they stay in the second-level cache.
size_t panel_rows(size_t cols);

class Linear {
 public:
  Linear(const Model& model, const Kernels& kernels, Workspace& work)
      : int8_(model.int8()), kernels_(kernels), work_(work) {}

  // Readies a row of an operand, whose floats are `width` wide, for the products to come; `fine` if any of them is.
  void prepare(const Operand& x, size_t row, size_t width, bool fine) const {
    if (int8_) quantise(x, row, width, fine);
  }

  // All products of the same x: of some of its rows, which are ready.
  void run(const Crew& crew, const Operand& x, Rows rows, std::span<const Product> products) const {
    int8_ ? run_int8(crew, x, rows, products) : run_float(crew, x.floats, rows, products);
  }

  // out = activation(x · gateᵀ) * (x · upᵀ), and ready, in the same rows.
  void run_gated(const Crew& crew, const Operand& x, Rows rows, const Layer& layer, const Operand& out) const {
    int8_ ? run_gated_int8(crew, x.integers, rows, layer, out.integers)
          : run_gated_float(crew, x.floats, rows, layer, out.floats);
  }

 private:
  // linear.cpp
  void run_float(const Crew& crew, const Activations& x, Rows rows, std::span<const Product> products) const;
  void run_gated_float(const Crew& crew, const Activations& x, Rows rows, const Layer& layer,
                       const Activations& out) const;
  // Weight rows [first, first + rows) for all tokens; `out` is the first of these outputs.
  void panel(const float* x, size_t x_stride, size_t tokens, const Matrix& w, size_t first, size_t rows, float* out,
             size_t out_stride, bool accumulate, unsigned thread) const;

  // linear_int8.cpp
  void quantise(const Operand& x, size_t row, size_t width, bool fine) const;
  void run_int8(const Crew& crew, const Operand& x, Rows rows, std::span<const Product> products) const;
  void run_gated_int8(const Crew& crew, const Quantised& x, Rows rows, const Layer& layer, const Quantised& out) const;
  // The first `columns` of a panel for all rows; `out` is the first of its outputs.
  void panel_int8(const Quantised& x, Rows rows, const Matrix& w, size_t panel, size_t columns, float* out,
                  size_t out_stride, bool accumulate) const;

  const bool int8_;
  const Kernels& kernels_;
  Workspace& work_;
};

}  // namespace foreword
