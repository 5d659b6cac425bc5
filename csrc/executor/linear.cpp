#include "linear.h"

#include <algorithm>

namespace foreword {
namespace {

constexpr size_t kPanelFloats = 32 * 1024;
constexpr size_t kFewTokens = 8;  // up to here weights are used a tile at a time, from the first-level cache

constexpr size_t divide_up(size_t n, size_t by) { return (n + by - 1) / by; }

}  // namespace

size_t panel_rows(size_t cols) {
  return std::max(kPanelFloats / round_up(cols, kLanes) / kRowTile * kRowTile, kRowTile);
}

void Linear::panel(const float* x, size_t x_stride, size_t tokens, const Matrix& w, size_t first, size_t rows,
                   float* out, size_t out_stride, bool accumulate, unsigned thread) const {
  const size_t stride = round_up(w.cols, kLanes), at_once = tokens <= kFewTokens ? kRowTile : rows;
  float* unpacked = work_.scratch[thread].weights.data();
  for (size_t done = 0; done < rows; done += at_once) {
    const size_t count = std::min(at_once, rows - done);
    for (size_t r = 0; r < count; ++r) {
      float* row = unpacked + r * stride;
      kernels_.dequantize(w.type, w.row(first + done + r), row, w.cols);
      std::fill(row + w.cols, row + stride, 0.0f);
    }
    kernels_.matmul(
        {x, x_stride, tokens, unpacked, stride, count, stride, out + done, out_stride, accumulate});
  }
}

void Linear::run_float(const Activations& x, size_t first_token, size_t tokens,
                       std::span<const Product> products) const {
  const size_t at_once = panel_rows(products.front().w.cols);
  size_t panels = 0;
  for (const Product& product : products) panels += divide_up(product.w.rows, at_once);
  threads_.run(panels, 1, [&](size_t index, size_t, unsigned thread) {
    const Product* product = products.data();
    for (; index >= divide_up(product->w.rows, at_once); ++product) index -= divide_up(product->w.rows, at_once);
    const size_t first = index * at_once, rows = std::min(at_once, product->w.rows - first);
    panel(x.row(first_token), x.stride(), tokens, product->w, first, rows, product->out + first, product->out_stride,
          product->accumulate, thread);
  });
}

void Linear::run_gated_float(const Activations& x, size_t tokens, const Layer& layer, const Activations& out) const {
  const size_t width = layer.gate.rows, at_once = panel_rows(layer.gate.cols);
  threads_.run(divide_up(width, at_once), 1, [&](size_t index, size_t, unsigned thread) {
    const size_t first = index * at_once, rows = std::min(at_once, width - first);
    float* up = work_.scratch[thread].up.data();
    panel(x.row(0), x.stride(), tokens, layer.gate, first, rows, out.row(0) + first, out.stride(), false, thread);
    panel(x.row(0), x.stride(), tokens, layer.up, first, rows, up, at_once, false, thread);
    for (size_t t = 0; t < tokens; ++t) {
      kernels_.gate(layer.activation, out.row(t) + first, up + t * at_once, rows);
    }
  });
}

}  // namespace foreword
