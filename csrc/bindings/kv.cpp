// Keys and identities of KV blocks.
#include "bindings.h"
#include "foreword/sha256.h"

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace foreword {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

// Each id as four bytes, the highest first.
nb::bytes pack_token_ids(const nb::list& token_ids) {
  const size_t count = token_ids.size();
  nb::bytes packed = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(4 * count)));
  if (!packed.is_valid()) nb::raise_python_error();
  char* out = PyBytes_AsString(packed.ptr());
  for (size_t i = 0; i < count; ++i, out += 4) {
    const unsigned long long id =
        PyLong_AsUnsignedLongLong(PyList_GetItem(token_ids.ptr(), static_cast<Py_ssize_t>(i)));
    if (id > UINT32_MAX) {
      if (PyErr_Occurred()) nb::raise_python_error();
      throw std::overflow_error("a token id has more than 32 bits");
    }
    for (int byte = 0; byte < 4; ++byte) out[byte] = static_cast<char>(id >> (24 - 8 * byte));
  }
  return packed;
}

nb::list digest_chain(const nb::bytes& tag, const nb::bytes& parent, const nb::bytes& data, size_t part_bytes,
                      bool portable) {
  if (part_bytes == 0) throw std::invalid_argument("a part has a byte at least");
  const Sha256Compress compress = portable ? sha256_portable : sha256_best();
  nb::list digests;
  for (const Digest& digest : sha256_chain(view(tag), view(parent), view(data), part_bytes, compress)) {
    digests.append(nb::bytes(digest.data(), digest.size()));
  }
  return digests;
}

}  // namespace

void bind_kv(nb::module_& m) {
  m.def("pack_token_ids", &pack_token_ids, "token_ids"_a);
  m.def("sha256_chain", &digest_chain, "tag"_a, "parent"_a, "data"_a, "part_bytes"_a, "portable"_a = false);
}

}  // namespace foreword
