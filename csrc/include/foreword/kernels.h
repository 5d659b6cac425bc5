// The arithmetic of a forward pass, one table of functions for each instruction set.
//
// Each kernel's result for a token depends on that token's inputs only, never on how many tokens stand beside it: the
// order of additions is fixed. csrc/ref has the plain twin of every kernel; csrc/simd is built once per instruction set.
#pragma once

#include "foreword/dtype.h"
#include "foreword/model.h"
#include "foreword/panel.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace foreword {

inline constexpr size_t kLanes = 16;      // floats that a kernel handles at once
inline constexpr size_t kBlockSize = 16;  // tokens in a KV block
inline constexpr size_t kRowTile = 4;     // weight rows that a kernel handles at once

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// out[t][r] (+)= x[t] · w[r], for `tokens` by `rows`. `k` is a multiple of kLanes (both sides are padded with zeros),
// and `w` has round_up(rows, kRowTile) readable rows.
struct MatmulArgs {
  const float* x;
  size_t x_stride, tokens;
  const float* w;
  size_t w_stride, rows;
  size_t k;
  float* out;
  size_t out_stride;
  bool accumulate;
};

// Attention of a few tokens of one sequence, for the query heads that share one key/value head.
//
// Block i of the sequence stands at kv + block_table[i] * block_stride: keys [head_dim][kBlockSize], then values
// [kBlockSize][round_up(head_dim, kLanes)]. Token t sees positions (positions[t] - window, positions[t]].
struct AttentionArgs {
  const float* q;  // [tokens][group][head_dim], tokens q_stride apart
  size_t q_stride;
  float* out;  // the same shape, tokens out_stride apart
  size_t out_stride;
  size_t tokens, group, head_dim;
  const int32_t* positions;  // ascending
  int32_t window;
  float scale;
  const float* kv;
  const int32_t* block_table;
  size_t block_stride;
  float* scratch;  // attention_scratch() floats
};

// Floats that a call needs for its running sums.
constexpr size_t attention_scratch(size_t tokens, size_t group, size_t head_dim) {
  return tokens * group * (round_up(head_dim, kLanes) + kBlockSize + 4);
}

struct Kernels {
  const char* isa;

  // `n` stored weights to float: bit-equal to dequantize_row.
  void (*dequantize)(DType type, const void* src, float* dst, size_t n);
  void (*matmul)(const MatmulArgs& args);
  void (*attention)(const AttentionArgs& args);
  // `n` activations to integers and their groups' scales; the last group is filled up with zeros. A group whose highest
  // magnitude is below kLeastActivation is all zeros; one with an infinity or no number has a scale that says so.
  void (*quantize)(const float* x, size_t n, int8_t* values, GroupScale* groups);
  void (*int8_matmul)(const Int8MatmulArgs& args);
  // out = x / sqrt(mean(x²) + eps) * weight; `out` may be `x`.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, size_t n);
  // Turns `pairs` pairs of channels in place.
  void (*rotate)(float* x, const float* cosines, const float* sines, size_t pairs, bool interleaved);
  // gate = activation(gate) * up
  void (*gate)(Activation activation, float* gate, const float* up, size_t n);
};

extern const Kernels kReferenceKernels;

// A table that was compiled in, and the CPU features that it wants and this machine lacks.
struct KernelBuild {
  const Kernels* kernels;
  std::vector<std::string_view> missing;
};

// Fastest first.
std::vector<KernelBuild> kernel_builds();

// Null for a name that does not exist or that this machine cannot run. "auto" is the fastest one.
const Kernels* find_kernels(std::string_view isa);

// Names that this machine can run, fastest first; the last is "reference".
std::vector<std::string_view> available_isas();

}  // namespace foreword
