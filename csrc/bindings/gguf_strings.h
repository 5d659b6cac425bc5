// String arrays as they lie in a GGUF file.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace foreword {

using Bytes = nanobind::ndarray<const uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

// A GGUF string is a 64-bit length and that many bytes. Walks `count` of them from `offset`, giving each
// to `visit`, and stops at one that leaves the data: returns how many it saw and where the next one starts.
template <typename Visit>
std::pair<uint64_t, uint64_t> walk_strings(const Bytes& data, uint64_t offset, uint64_t count, Visit visit) {
  const uint64_t size = data.size();
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length;
    if (offset > size || size - offset < sizeof length) return {i, offset};
    std::memcpy(&length, data.data() + offset, sizeof length);
    if (length > size - offset - sizeof length) return {i, offset};
    visit(reinterpret_cast<const char*>(data.data()) + offset + sizeof length, length);
    offset += sizeof length + length;
  }
  return {count, offset};
}

}  // namespace foreword
