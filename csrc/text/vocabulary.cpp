#include <bit>
#include <functional>

#include "foreword/tokenizer.h"

namespace foreword {

Vocabulary::Vocabulary(size_t count, size_t total_bytes) : slots_(std::bit_ceil(2 * count + 1)) {
  bytes_.reserve(total_bytes);
  starts_.reserve(count + 1);
  types_.reserve(count);
}

void Vocabulary::add(std::string_view text, TokenType type) {
  const auto id = static_cast<int32_t>(size());
  bytes_.append(text);
  starts_.push_back(bytes_.size());
  types_.push_back(type);
  if (text.empty() || (type != TokenType::Normal && type != TokenType::UserDefined && type != TokenType::Unused)) {
    return;
  }
  if (text.size() > longest_) longest_ = text.size();
  const size_t hash = std::hash<std::string_view>{}(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id != kNoToken && !(slots_[at].tag == tag && this->text(slots_[at].id) == text)) {
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {tag, id};
}

int32_t Vocabulary::find(std::string_view text) const {
  if (text.size() > longest_) return kNoToken;
  const size_t hash = std::hash<std::string_view>{}(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & (slots_.size() - 1); slots_[at].id != kNoToken; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].tag == tag && this->text(slots_[at].id) == text) return slots_[at].id;
  }
  return kNoToken;
}

}  // namespace foreword
