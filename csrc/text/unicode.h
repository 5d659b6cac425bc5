// The general categories that splitting rules ask for.
#pragma once

#include <cstdint>

namespace foreword {

enum class CharClass : uint8_t { Other, Letter, Number, Space };  // \p{L}, \p{N}, \s

CharClass char_class(uint32_t code);

bool is_punctuation(uint32_t code);  // \p{P}

}  // namespace foreword
