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

void Linear::run_float(const Crew& crew, const Activations& x, Rows rows, std::span<const Product> products) const {
  const size_t at_once = panel_rows(products.front().w.cols);
  size_t panels = 0;
  for (const Product& product : products) panels += divide_up(product.w.rows, at_once);
  crew.run(panels, 1, [&](size_t index, size_t, unsigned thread) {
    const Product* product = products.data();
    for (; index >= divide_up(product->w.rows, at_once); ++product) index -= divide_up(product->w.rows, at_once);
    const size_t first = index * at_once, columns = std::min(at_once, product->w.rows - first);
    panel(x.row(rows.first), x.stride(), rows.count, product->w, first, columns, product->out + first,
          product->out_stride, product->accumulate, thread);
  });
}

void Linear::run_gated_float(const Crew& crew, const Activations& x, Rows rows, const Layer& layer,
                             const Activations& out) const {
  const size_t width = layer.gate.rows, at_once = panel_rows(layer.gate.cols);
  crew.run(divide_up(width, at_once), 1, [&](size_t index, size_t, unsigned thread) {
    const size_t first = index * at_once, columns = std::min(at_once, width - first);
    const float* in = x.row(rows.first);
    float *gate = out.row(rows.first) + first, *up = work_.scratch[thread].up.data();
    panel(in, x.stride(), rows.count, layer.gate, first, columns, gate, out.stride(), false, thread);
    panel(in, x.stride(), rows.count, layer.up, first, columns, up, at_once, false, thread);
    for (size_t t = 0; t < rows.count; ++t) {
      kernels_.gate(layer.activation, gate + t * out.stride(), up + t * at_once, columns);
    }
  });
}

}  // namespace foreword
