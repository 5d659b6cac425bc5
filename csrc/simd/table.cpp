#include "kernels.h"

#define FOREWORD_STRING_(x) #x
#define FOREWORD_STRING(x) FOREWORD_STRING_(x)

namespace foreword::FOREWORD_ISA {

extern const Kernels kKernels;
const Kernels kKernels{FOREWORD_STRING(FOREWORD_ISA), dequantize,  matmul,   write_kv, attention,
                       quantize,                        int8_matmul, rms_norm, rotate,   gate};

}  // namespace foreword::FOREWORD_ISA
