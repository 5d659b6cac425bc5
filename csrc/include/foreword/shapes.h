// Sizes that kernels, the KV cache and the executor agree on.
#pragma once

#include <cstddef>

namespace foreword {

inline constexpr size_t kLanes = 16;      // floats that a kernel handles at once
inline constexpr size_t kBlockSize = 16;  // tokens in a KV block
inline constexpr size_t kRowTile = 4;     // rows that a kernel handles at once

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace foreword
