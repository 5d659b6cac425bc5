#include "linear.h"

#include <algorithm>

namespace foreword {

void Linear::quantise(const Operand& x, size_t row, size_t width, bool fine) const {
  kernels_.quantize({.x = x.floats.row(row),
                     .n = width,
                     .values = x.integers.row(row),
                     .groups = x.integers.groups(row),
                     .rest_values = fine ? x.rest.row(row) : nullptr,
                     .rest_groups = fine ? x.rest.groups(row) : nullptr});
}

void Linear::panel_int8(const Quantised& x, Rows rows, const Matrix& w, size_t panel, size_t columns, float* out,
                        size_t out_stride, bool accumulate) const {
  kernels_.int8_matmul({.x = x.row(rows.first),
                        .x_stride = x.stride(),
                        .x_groups = x.groups(rows.first),
                        .tokens = rows.count,
                        .format = panel_format(w.type),
                        .panel = w.panels + panel * panel_bytes(w.type, w.cols),
                        .groups = x.groups_per_row(),
                        .out = out,
                        .out_stride = out_stride,
                        .columns = columns,
                        .accumulate = accumulate});
}

void Linear::run_int8(const Crew& crew, const Operand& x, Rows rows, std::span<const Product> products) const {
  size_t panels = 0;
  for (const Product& product : products) panels += panels_of(product.w.rows);
  crew.run(panels, 1, [&](size_t index, size_t, unsigned) {
    const Product* product = products.data();
    for (; index >= panels_of(product->w.rows); ++product) index -= panels_of(product->w.rows);
    const Matrix& w = product->w;
    const size_t first = index * kPanelColumns, columns = std::min(kPanelColumns, w.rows - first);
    float* out = product->out + first;
    panel_int8(x.integers, rows, w, index, columns, out, product->out_stride, product->accumulate);
    if (product->fine) panel_int8(x.rest, rows, w, index, columns, out, product->out_stride, true);
  });
}

// The outputs of a panel are a group of the next product's inputs: they are quantised where they were made.
void Linear::run_gated_int8(const Crew& crew, const Quantised& x, Rows rows, const Layer& layer,
                            const Quantised& out) const {
  constexpr size_t kGrain = 2;  // two panels' bytes are a cache line, which no other thread writes to
  static_assert(kPanelColumns == kGroup);
  crew.run(panels_of(layer.gate.rows), kGrain, [&](size_t begin, size_t end, unsigned thread) {
    float *gate = work_.scratch[thread].gate.data(), *up = work_.scratch[thread].up.data();
    const size_t n = rows.count * kPanelColumns;
    for (size_t panel = begin; panel < end; ++panel) {
      // The last panel's padding too: it weighs nothing, so what comes of it is the zeros that end the last group.
      panel_int8(x, rows, layer.gate, panel, kPanelColumns, gate, kPanelColumns, false);
      panel_int8(x, rows, layer.up, panel, kPanelColumns, up, kPanelColumns, false);
      kernels_.gate(layer.activation, gate, up, n);
      kernels_.quantize({.x = gate,
                         .n = n,
                         .values = out.row(rows.first) + panel * kGroup,
                         .groups = out.groups(rows.first) + panel,
                         .values_stride = out.stride(),
                         .groups_stride = out.groups_per_row()});
    }
  });
}

}  // namespace foreword
