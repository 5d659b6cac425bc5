// Data types, dequantising, and the scan of GGUF string arrays.
#include "bindings.h"
#include "gguf_strings.h"
#include "foreword/dtype.h"
#include "foreword/panel.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace nb = nanobind;

namespace foreword {
namespace {

std::optional<std::tuple<const char*, uint32_t, uint32_t>> type_info(uint32_t ggml_type) {
  const DTypeInfo* info = dtype_info(ggml_type);
  if (!info) return std::nullopt;
  return std::tuple{info->name, info->block_elements, info->block_bytes};
}

nb::ndarray<nb::memview, float, nb::ndim<1>> dequantize(uint32_t ggml_type, Bytes data, size_t n) {
  const DTypeInfo* info = dtype_info(ggml_type);
  if (!info) throw std::invalid_argument("unknown data type");
  if (n % info->block_elements != 0 || data.size() != n / info->block_elements * info->block_bytes) {
    throw std::invalid_argument("data does not hold n weights");
  }
  auto out = std::make_unique<float[]>(n);
  {
    nb::gil_scoped_release unlocked;
    dequantize_row(static_cast<DType>(ggml_type), data.data(), out.get(), n);
  }
  float* values = out.get();
  nb::capsule owner(out.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return {values, {n}, owner};
}

size_t matrix_panel_bytes(uint32_t ggml_type, size_t rows, size_t cols) {
  if (!dtype_info(ggml_type)) throw std::invalid_argument("unknown data type");
  return panels_of(rows) * panel_bytes(static_cast<DType>(ggml_type), cols);
}

void pack_panels(uint32_t ggml_type, const Bytes& data, size_t rows, size_t cols,
                 const nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& out) {
  const DTypeInfo* info = dtype_info(ggml_type);
  if (!info || cols % info->block_elements != 0 || data.size() != rows * (cols / info->block_elements * info->block_bytes)) {
    throw std::invalid_argument("data does not hold the matrix");
  }
  if (out.size() != matrix_panel_bytes(ggml_type, rows, cols)) throw std::invalid_argument("the panels do not fit");
  const auto type = static_cast<DType>(ggml_type);
  const nb::gil_scoped_release unlocked;
  for (size_t i = 0; i < panels_of(rows); ++i) {
    pack_panel(type, data.data(), data.size() / rows, rows, cols, i * kPanelColumns,
               out.data() + i * panel_bytes(type, cols));
  }
}

uint64_t checksum_of(const Bytes& data) {
  const nb::gil_scoped_release unlocked;
  return checksum(data.data(), data.size());
}

std::pair<uint64_t, uint64_t> skip_strings(Bytes data, uint64_t offset, uint64_t count) {
  nb::gil_scoped_release unlocked;
  return walk_strings(data, offset, count, [](const char*, uint64_t) {});
}

nb::list read_strings(Bytes data, uint64_t offset, uint64_t count) {
  nb::list strings;
  walk_strings(data, offset, count, [&](const char* text, uint64_t length) {
    PyObject* decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), "surrogateescape");
    if (!decoded) nb::raise_python_error();
    strings.append(nb::steal(decoded));
  });
  return strings;
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def("dtype_info", &type_info, nb::arg("ggml_type"));
  m.def("dequantize", &dequantize, nb::arg("ggml_type"), nb::arg("data"), nb::arg("n"));
  m.def("panel_bytes", &matrix_panel_bytes, nb::arg("ggml_type"), nb::arg("rows"), nb::arg("cols"));
  m.def("pack_panels", &pack_panels, nb::arg("ggml_type"), nb::arg("data"), nb::arg("rows"), nb::arg("cols"),
        nb::arg("out"));
  m.attr("PANEL_VERSION") = kPanelVersion;
  m.def("checksum", &checksum_of, nb::arg("data"));
  m.def("skip_strings", &skip_strings, nb::arg("data"), nb::arg("offset"), nb::arg("count"));
  m.def("read_strings", &read_strings, nb::arg("data"), nb::arg("offset"), nb::arg("count"));
}

}  // namespace foreword
