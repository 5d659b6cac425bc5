// Single kernels, for parity tests.
#include "bindings.h"
#include "foreword/kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace foreword {
namespace {

template <typename T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

void require(bool holds) {
  if (!holds) throw std::invalid_argument("the arrays' sizes do not fit");
}

struct KernelTable {
  const Kernels& kernels;
};

void make_table(KernelTable* self, std::string_view isa) {
  const Kernels* kernels = find_kernels(isa);
  if (!kernels) throw std::invalid_argument("this machine cannot run " + std::string(isa));
  new (self) KernelTable{*kernels};
}

void dequantize(const KernelTable& self, uint32_t ggml_type, const Array<const uint8_t, 1>& data,
                const Array<float, 1>& out) {
  const DTypeInfo* info = dtype_info(ggml_type);
  require(info && out.size() % info->block_elements == 0 &&
          data.size() == out.size() / info->block_elements * info->block_bytes);
  self.kernels.dequantize(static_cast<DType>(ggml_type), data.data(), out.data(), out.size());
}

void matmul(const KernelTable& self, const Array<const float, 2>& x, const Array<const float, 2>& w,
            const Array<float, 2>& out, bool accumulate) {
  const size_t tokens = x.shape(0), rows = out.shape(1), k = x.shape(1);
  require(out.shape(0) == tokens && w.shape(0) == round_up(rows, kRowTile) && w.shape(1) == k && k % kLanes == 0);
  self.kernels.matmul({x.data(), k, tokens, w.data(), k, rows, k, out.data(), rows, accumulate});
}

// Keys and values of one kv head: a row of bytes for each block.
using Pool = Array<uint8_t, 2>;

KVLayout make_layout(std::string_view dtype, size_t head_dim) {
  const std::optional<KVDType> known = kv_dtype(dtype);
  require(known && head_dim > 0 && head_dim <= kMostHeadDim);
  return kv_layout(*known, head_dim);
}

void write_kv(const KernelTable& self, std::string_view dtype, const Pool& pool, size_t block, size_t slot,
              const Array<const float, 1>& key, const Array<const float, 1>& value) {
  const KVLayout layout = make_layout(dtype, key.size());
  require(value.size() == key.size() && block < pool.shape(0) && slot < kBlockSize && pool.shape(1) >= layout.bytes);
  self.kernels.write_kv({layout, pool.data() + block * pool.shape(1), slot, key.data(), value.data()});
}

void attention(const KernelTable& self, const Array<const float, 3>& q, std::string_view dtype, const Pool& pool,
               const Array<const int32_t, 1>& block_table, const Array<const int32_t, 1>& positions, int32_t window,
               float scale, const Array<float, 3>& out) {
  const size_t tokens = q.shape(0), group = q.shape(1), head_dim = q.shape(2);
  const KVLayout layout = make_layout(dtype, head_dim);
  require(out.size() == q.size() && positions.size() == tokens && tokens > 0 && pool.shape(1) >= layout.bytes);
  for (size_t i = 0; i < block_table.size(); ++i) {
    require(block_table(i) >= 0 && static_cast<size_t>(block_table(i)) < pool.shape(0));
  }
  for (size_t t = 0; t < tokens; ++t) {
    require(positions(t) >= 0 && static_cast<size_t>(positions(t)) / kBlockSize < block_table.size());
    require(t == 0 || positions(t) > positions(t - 1));
  }
  std::vector<float> scratch(attention_scratch(tokens, group, head_dim));
  self.kernels.attention({.q = q.data(),
                          .q_stride = group * head_dim,
                          .out = out.data(),
                          .out_stride = group * head_dim,
                          .tokens = tokens,
                          .group = group,
                          .positions = positions.data(),
                          .window = window == 0 ? kNoWindow : window,
                          .scale = scale,
                          .layout = layout,
                          .kv = pool.data(),
                          .block_table = block_table.data(),
                          .block_stride = pool.shape(1),
                          .scratch = scratch.data()});
}

// Scales of groups as three words each: see GroupScale.
using Groups = Array<float, 3>;

void quantize(const KernelTable& self, const Array<const float, 2>& x, const Array<int8_t, 2>& values,
              const Groups& groups, const std::optional<Array<int8_t, 2>>& rest_values,
              const std::optional<Groups>& rest_groups) {
  const size_t tokens = x.shape(0), k = x.shape(1), count = groups_of(k);
  const auto check = [&](const Array<int8_t, 2>& v, const Groups& g) {
    require(v.shape(0) == tokens && v.shape(1) == count * kGroup);
    require(g.shape(0) == tokens && g.shape(1) == count && g.shape(2) == 3);
  };
  check(values, groups);
  require(rest_values.has_value() == rest_groups.has_value());
  if (rest_values) check(*rest_values, *rest_groups);
  const auto scales = [&](const Groups& g, size_t token) { return reinterpret_cast<GroupScale*>(g.data()) + token * count; };
  for (size_t t = 0; t < tokens; ++t) {
    self.kernels.quantize({.x = x.data() + t * k,
                           .n = k,
                           .values = values.data() + t * count * kGroup,
                           .groups = scales(groups, t),
                           .rest_values = rest_values ? rest_values->data() + t * count * kGroup : nullptr,
                           .rest_groups = rest_groups ? scales(*rest_groups, t) : nullptr});
  }
}

void int8_matmul(const KernelTable& self, uint32_t ggml_type, const Array<const uint8_t, 1>& panels,
                 const Array<const int8_t, 2>& values, const Groups& groups, const Array<float, 2>& out,
                 bool accumulate) {
  const auto type = static_cast<DType>(ggml_type);
  const size_t tokens = values.shape(0), k = values.shape(1), rows = out.shape(1), bytes = panel_bytes(type, k);
  require(dtype_info(ggml_type) && k % kGroup == 0 && panels.size() == panels_of(rows) * bytes);
  require(out.shape(0) == tokens && groups.shape(0) == tokens && groups.shape(1) == k / kGroup && groups.shape(2) == 3);
  const nb::gil_scoped_release unlocked;
  for (size_t first = 0; first < rows; first += kPanelColumns) {
    self.kernels.int8_matmul({.x = values.data(),
                              .x_stride = k,
                              .x_groups = reinterpret_cast<const GroupScale*>(groups.data()),
                              .tokens = tokens,
                              .format = panel_format(type),
                              .panel = panels.data() + first / kPanelColumns * bytes,
                              .groups = k / kGroup,
                              .out = out.data() + first,
                              .out_stride = rows,
                              .columns = std::min(kPanelColumns, rows - first),
                              .accumulate = accumulate});
  }
}

void rms_norm(const KernelTable& self, const Array<const float, 1>& x, const Array<const float, 1>& weight, float eps,
              const Array<float, 1>& out) {
  require(weight.size() == x.size() && out.size() == x.size());
  self.kernels.rms_norm(x.data(), weight.data(), eps, out.data(), x.size());
}

void rotate(const KernelTable& self, const Array<float, 1>& x, const Array<const float, 1>& cosines,
            const Array<const float, 1>& sines, bool interleaved) {
  require(x.size() >= 2 * cosines.size() && sines.size() == cosines.size());
  self.kernels.rotate(x.data(), cosines.data(), sines.data(), cosines.size(), interleaved);
}

void gate(const KernelTable& self, Activation activation, const Array<float, 1>& gate,
          const Array<const float, 1>& up) {
  require(gate.size() == up.size());
  self.kernels.gate(activation, gate.data(), up.data(), gate.size());
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.def(
      "kv_head_bytes", [](std::string_view dtype, size_t head_dim) { return make_layout(dtype, head_dim).bytes; },
      "dtype"_a, "head_dim"_a);
  nb::class_<KernelTable>(m, "Kernels")
      .def("__init__", make_table, "isa"_a)
      .def("dequantize", dequantize, "ggml_type"_a, "data"_a, "out"_a)
      .def("matmul", matmul, "x"_a, "w"_a, "out"_a, "accumulate"_a)
      .def("quantize", quantize, "x"_a, "values"_a, "groups"_a, "rest_values"_a = nb::none(),
           "rest_groups"_a = nb::none())
      .def("int8_matmul", int8_matmul, "ggml_type"_a, "panels"_a, "values"_a, "groups"_a, "out"_a, "accumulate"_a)
      .def("write_kv", write_kv, "dtype"_a, "pool"_a, "block"_a, "slot"_a, "key"_a, "value"_a)
      .def("attention", attention, "q"_a, "dtype"_a, "pool"_a, "block_table"_a, "positions"_a, "window"_a, "scale"_a,
           "out"_a)
      .def("rms_norm", rms_norm, "x"_a, "weight"_a, "eps"_a, "out"_a)
      .def("rotate", rotate, "x"_a, "cosines"_a, "sines"_a, "interleaved"_a)
      .def("gate", gate, "activation"_a, "gate"_a, "up"_a);
}

}  // namespace foreword
