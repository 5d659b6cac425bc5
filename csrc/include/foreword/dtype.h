// Data types of stored weights: GGUF's numbering, block sizes, and conversion to float.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foreword {

// Values are GGUF's (`ggml_type`), so that a file's numbers can be cast after `dtype_info` accepted them.
enum class DType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  BF16 = 30,
};

struct DTypeInfo {
  const char* name;
  uint32_t block_elements;  // weights that share one block's scales
  uint32_t block_bytes;
};

// Null for a type that foreword does not read.
const DTypeInfo* dtype_info(uint32_t ggml_type);

// The scalar twin: `n` weights (a multiple of the block) starting at `src` to float.
void dequantize_row(DType type, const void* src, float* dst, size_t n);

}  // namespace foreword
