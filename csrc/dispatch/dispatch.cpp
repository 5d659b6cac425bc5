// Picks a kernel table from what the processor and the operating system can do. Built without ISA flags.
#include "foreword/kernels.h"

#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace foreword {

// Defined in csrc/simd/table.cpp, once for each instruction set that it is built for.
namespace portable {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx512_vnni {
extern const Kernels kKernels;
}
#endif

namespace {

#if defined(__x86_64__)
// Register state that the operating system saves on a context switch (XCR0). Without the right bits an instruction that
// CPUID promises would still fault.
uint64_t saved_state() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  uint32_t low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool has_avx2() {
  constexpr uint64_t kYmm = 0x6;
  return (saved_state() & kYmm) == kYmm && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  constexpr uint64_t kZmm = 0xe6;
  return (saved_state() & kZmm) == kZmm && has_avx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable;
#if defined(__x86_64__)
  if (has_avx512() && __builtin_cpu_supports("avx512vnni")) usable.push_back(&avx512_vnni::kKernels);
  if (has_avx512()) usable.push_back(&avx512::kKernels);
  if (has_avx2()) usable.push_back(&avx2::kKernels);
#endif
  usable.push_back(&portable::kKernels);
  usable.push_back(&kReferenceKernels);
  return usable;
}

}  // namespace

const Kernels* find_kernels(std::string_view isa) {
  for (const Kernels* kernels : usable_kernels()) {
    if (isa == "auto" || isa == kernels->isa) return kernels;
  }
  return nullptr;
}

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const Kernels* kernels : usable_kernels()) names.push_back(kernels->isa);
  return names;
}

}  // namespace foreword
