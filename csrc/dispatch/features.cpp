#include "foreword/features.h"

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace foreword {
namespace {

#if defined(__x86_64__)

enum Register { kEax, kEbx, kEcx, kEdx };

// Register state that the operating system saves on a context switch (bits of XCR0). Without it an instruction that
// CPUID promises would still fault.
constexpr uint64_t kXmm = 0x2, kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;

struct Bit {
  std::string_view name;
  unsigned leaf, subleaf;
  Register in;
  unsigned bit;
  uint64_t state;
};

// Intel's Software Developer's Manual, volume 2, CPUID.
constexpr Bit kBits[] = {
    {"sha_ni", 7, 0, kEbx, 29, kXmm},      {"avx2", 7, 0, kEbx, 5, kYmm},
    {"fma", 1, 0, kEcx, 12, kYmm},         {"f16c", 1, 0, kEcx, 29, kYmm},
    {"gfni", 7, 0, kEcx, 8, kYmm},         {"avx_vnni", 7, 1, kEax, 4, kYmm},
    {"avx512f", 7, 0, kEbx, 16, kZmm},     {"avx512dq", 7, 0, kEbx, 17, kZmm},
    {"avx512bw", 7, 0, kEbx, 30, kZmm},    {"avx512vl", 7, 0, kEbx, 31, kZmm},
    {"avx512vbmi", 7, 0, kEcx, 1, kZmm},   {"avx512_vnni", 7, 0, kEcx, 11, kZmm},
    {"avx512_bf16", 7, 1, kEax, 5, kZmm},  {"avx512_fp16", 7, 0, kEdx, 23, kZmm},
    {"amx_tile", 7, 0, kEdx, 24, kTiles},  {"amx_int8", 7, 0, kEdx, 25, kTiles},
    {"amx_bf16", 7, 0, kEdx, 22, kTiles},
};

uint64_t saved_state() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  uint32_t low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

bool usable(const Bit& bit, uint64_t saved) {
  unsigned registers[4];
  return (saved & bit.state) == bit.state &&
         __get_cpuid_count(bit.leaf, bit.subleaf, &registers[kEax], &registers[kEbx], &registers[kEcx],
                           &registers[kEdx]) &&
         (registers[bit.in] >> bit.bit & 1);
}

std::vector<Feature> read_features() {
  std::vector<Feature> features;
  const uint64_t saved = saved_state();
  for (const Bit& bit : kBits) features.push_back({bit.name, usable(bit, saved)});
  return features;
}

#else

std::vector<Feature> read_features() { return {}; }

#endif

}  // namespace

const std::vector<Feature>& cpu_features() {
  static const std::vector<Feature> features = read_features();
  return features;
}

bool has_feature(std::string_view name) {
  return std::ranges::any_of(cpu_features(), [&](const Feature& f) { return f.usable && f.name == name; });
}

}  // namespace foreword
