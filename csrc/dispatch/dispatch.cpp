// Picks a kernel table from what the processor and the operating system can do. Built without ISA flags.
#include "foreword/features.h"
#include "foreword/kernels.h"

#include <initializer_list>

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

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> usable;
  for (const KernelBuild& build : kernel_builds()) {
    if (build.missing.empty()) usable.push_back(build.kernels);
  }
  return usable;
}

KernelBuild build(const Kernels& kernels, std::initializer_list<std::string_view> needs = {}) {
  KernelBuild build{&kernels, {}};
  for (const std::string_view feature : needs) {
    if (!has_feature(feature)) build.missing.push_back(feature);
  }
  return build;
}

}  // namespace

std::vector<KernelBuild> kernel_builds() {
  return {
#if defined(__x86_64__)
      build(avx512_vnni::kKernels,
            {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}),
      build(avx512::kKernels, {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"}),
      build(avx2::kKernels, {"avx2", "fma", "f16c"}),
#endif
      build(portable::kKernels),
      build(kReferenceKernels),
  };
}

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
