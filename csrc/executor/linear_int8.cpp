#include "linear.h"

#include <algorithm>

namespace foreword {

void Linear::quantise(const Operand& x, size_t row, size_t width, bool fine) const {
  const float* floats = x.floats.row(row);
  const int8_t* integers = x.integers.row(row);
  const GroupScale* groups = x.integers.groups(row);
  kernels_.quantize(floats, width, x.integers.row(row), x.integers.groups(row));
  if (!fine) return;
  for (size_t g = 0; g < x.integers.groups_per_row(); ++g) {
    const size_t first = g * kGroup, count = std::min(kGroup, width - first);
    float rest[kGroup];
    for (size_t i = 0; i < count; ++i) {
      rest[i] = floats[first + i] - static_cast<float>(integers[first + i]) * groups[g].scale;
    }
    kernels_.quantize(rest, count, x.rest.row(row) + first, x.rest.groups(row) + g);
  }
}

void Linear::panel_int8(const Quantised& x, size_t first, size_t tokens, const Matrix& w, size_t panel, float* out,
                        size_t out_stride, bool accumulate) const {
  kernels_.int8_matmul({.x = x.row(first),
                        .x_stride = x.stride(),
                        .x_groups = x.groups(first),
                        .tokens = tokens,
                        .format = panel_format(w.type),
                        .panel = w.panels + panel * panel_bytes(w.type, w.cols),
                        .groups = x.groups_per_row(),
                        .out = out,
                        .out_stride = out_stride,
                        .columns = std::min(kPanelColumns, w.rows - panel * kPanelColumns),
                        .accumulate = accumulate});
}

void Linear::run_int8(const Operand& x, size_t first, size_t tokens, std::span<const Product> products) const {
  size_t panels = 0;
  for (const Product& product : products) panels += panels_of(product.w.rows);
  threads_.run(panels, 1, [&](size_t index, size_t, unsigned) {
    const Product* product = products.data();
    for (; index >= panels_of(product->w.rows); ++product) index -= panels_of(product->w.rows);
    float* out = product->out + index * kPanelColumns;
    panel_int8(x.integers, first, tokens, product->w, index, out, product->out_stride, product->accumulate);
    if (product->fine) panel_int8(x.rest, first, tokens, product->w, index, out, product->out_stride, true);
  });
}

// The outputs of a panel are a group of the next product's inputs: they are quantised where they were made.
void Linear::run_gated_int8(const Quantised& x, size_t tokens, const Layer& layer, const Quantised& out) const {
  constexpr size_t kGrain = 2;  // two panels' bytes are a cache line, which no other thread writes to
  static_assert(kPanelColumns == kGroup);
  threads_.run(panels_of(layer.gate.rows), kGrain, [&](size_t begin, size_t end, unsigned thread) {
    float *gate = work_.scratch[thread].gate.data(), *up = work_.scratch[thread].up.data();
    for (size_t panel = begin; panel < end; ++panel) {
      panel_int8(x, 0, tokens, layer.gate, panel, gate, kPanelColumns, false);
      panel_int8(x, 0, tokens, layer.up, panel, up, kPanelColumns, false);
      const size_t columns = std::min(kPanelColumns, layer.gate.rows - panel * kPanelColumns);
      for (size_t t = 0; t < tokens; ++t) {
        float* row = gate + t * kPanelColumns;
        kernels_.gate(layer.activation, row, up + t * kPanelColumns, columns);
        kernels_.quantize(row, columns, out.row(t) + panel * kGroup, out.groups(t) + panel);
      }
    }
  });
}

}  // namespace foreword
