#include "foreword/dtype.h"

#include "foreword/blocks.h"

namespace foreword {
namespace {

template <typename Block>
constexpr DTypeInfo block_type(const char* name) {
  return {name, Block::kElements, sizeof(Block)};
}

constexpr DTypeInfo kF32{"F32", 1, 4}, kF16{"F16", 1, 2}, kBF16{"BF16", 1, 2};
constexpr DTypeInfo kQ4_0 = block_type<BlockQ4_0>("Q4_0"), kQ4_1 = block_type<BlockQ4_1>("Q4_1");
constexpr DTypeInfo kQ5_0 = block_type<BlockQ5_0>("Q5_0"), kQ5_1 = block_type<BlockQ5_1>("Q5_1");
constexpr DTypeInfo kQ8_0 = block_type<BlockQ8_0>("Q8_0");
constexpr DTypeInfo kQ2_K = block_type<BlockQ2_K>("Q2_K"), kQ3_K = block_type<BlockQ3_K>("Q3_K");
constexpr DTypeInfo kQ4_K = block_type<BlockQ4_K>("Q4_K"), kQ5_K = block_type<BlockQ5_K>("Q5_K");
constexpr DTypeInfo kQ6_K = block_type<BlockQ6_K>("Q6_K");
constexpr DTypeInfo kIQ4_NL = block_type<BlockIQ4_NL>("IQ4_NL");

}  // namespace

const DTypeInfo* dtype_info(uint32_t ggml_type) {
  switch (static_cast<DType>(ggml_type)) {
    case DType::F32: return &kF32;
    case DType::F16: return &kF16;
    case DType::BF16: return &kBF16;
    case DType::Q4_0: return &kQ4_0;
    case DType::Q4_1: return &kQ4_1;
    case DType::Q5_0: return &kQ5_0;
    case DType::Q5_1: return &kQ5_1;
    case DType::Q8_0: return &kQ8_0;
    case DType::Q2_K: return &kQ2_K;
    case DType::Q3_K: return &kQ3_K;
    case DType::Q4_K: return &kQ4_K;
    case DType::Q5_K: return &kQ5_K;
    case DType::Q6_K: return &kQ6_K;
    case DType::IQ4_NL: return &kIQ4_NL;
  }
  return nullptr;
}

}  // namespace foreword
