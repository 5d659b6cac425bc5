// Twins that stand in their own files.
#pragma once

#include "foreword/kernels.h"

namespace foreword::ref {

void write_kv(const WriteKVArgs& args);
void attention(const AttentionArgs& args);
void quantize(const QuantizeArgs& args);
void int8_matmul(const Int8MatmulArgs& args);

}  // namespace foreword::ref
