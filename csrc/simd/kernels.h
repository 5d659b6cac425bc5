// The kernels of this folder, in the namespace of the instruction set that they are built for.
#pragma once

#include "foreword/kernels.h"

namespace foreword::FOREWORD_ISA {

void dequantize(DType type, const void* src, float* dst, size_t n);
void matmul(const MatmulArgs& args);
void write_kv(const WriteKVArgs& args);
void attention(const AttentionArgs& args);
void quantize(const QuantizeArgs& args);
void int8_matmul(const Int8MatmulArgs& args);
void rms_norm(const float* x, const float* weight, float eps, float* out, size_t n);
void rotate(float* x, const float* cosines, const float* sines, size_t pairs, bool interleaved);
void gate(Activation activation, float* gate, const float* up, size_t n);

}  // namespace foreword::FOREWORD_ISA
