// What the processor can do and the operating system lets it do.
#pragma once

#include <string_view>
#include <vector>

namespace foreword {

struct Feature {
  std::string_view name;  // as Linux spells it in /proc/cpuinfo
  bool usable;            // the processor has it, and the system saves the registers that it needs
};

// All that kernels might ask about. Empty on an architecture that has none of them.
const std::vector<Feature>& cpu_features();

bool has_feature(std::string_view name);

}  // namespace foreword
