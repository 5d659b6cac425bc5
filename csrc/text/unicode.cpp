#include "unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace foreword {
namespace {

struct Range {
  uint32_t first, last;
};

#include "unicode_data.inc"  // kLetters, kNumbers, kPunctuation, kSpaces: sorted, disjoint

template <size_t N>
constexpr bool contains(const Range (&ranges)[N], uint32_t code) {
  const Range* after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                        [](uint32_t value, const Range& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

constexpr CharClass look_up(uint32_t code) {
  if (contains(kLetters, code)) return CharClass::Letter;
  if (contains(kSpaces, code)) return CharClass::Space;
  if (contains(kNumbers, code)) return CharClass::Number;
  return CharClass::Other;
}

constexpr auto kAscii = [] {
  std::array<CharClass, 0x80> table{};
  for (uint32_t code = 0; code < table.size(); ++code) table[code] = look_up(code);
  return table;
}();

}  // namespace

CharClass char_class(uint32_t code) { return code < kAscii.size() ? kAscii[code] : look_up(code); }

bool is_punctuation(uint32_t code) { return contains(kPunctuation, code); }

}  // namespace foreword
