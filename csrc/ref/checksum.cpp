#include "foreword/panel.h"

#include <bit>
#include <cstring>

namespace foreword {

uint64_t checksum(const uint8_t* data, size_t n) {
  constexpr size_t kLanes = 8;  // independent sums
  uint64_t sums[kLanes] = {}, sums_of_sums[kLanes] = {};
  size_t left = n;
  for (; left >= sizeof sums; left -= sizeof sums, data += sizeof sums) {
    uint64_t words[kLanes];
    std::memcpy(words, data, sizeof words);
    for (size_t i = 0; i < kLanes; ++i) sums_of_sums[i] += sums[i] += words[i];
  }
  uint64_t mixed = n;
  const auto mix = [&](uint64_t word) { mixed = std::rotl((mixed ^ word) * 0x9e3779b97f4a7c15, 29); };
  for (; left > 0; --left) mix(*data++);
  for (size_t i = 0; i < kLanes; ++i) {
    mix(sums[i]);
    mix(sums_of_sums[i]);
  }
  return mixed;
}

}  // namespace foreword
