// The arithmetic of a forward pass, one table of functions for each instruction set.
//
// Each kernel's result for a token depends on that token's inputs only, never on how many tokens stand beside it: the
// order of additions is fixed. csrc/ref has the plain twin of every kernel; csrc/simd is built once per instruction set.
#pragma once

#include "foreword/attention.h"
#include "foreword/dtype.h"
#include "foreword/model.h"
#include "foreword/panel.h"
#include "foreword/shapes.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace foreword {

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

struct Kernels {
  const char* isa;

  // `n` stored weights to float: bit-equal to dequantize_row.
  void (*dequantize)(DType type, const void* src, float* dst, size_t n);
  void (*matmul)(const MatmulArgs& args);
  void (*write_kv)(const WriteKVArgs& args);
  void (*attention)(const AttentionArgs& args);
  void (*quantize)(const QuantizeArgs& args);
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
