#include <array>
#include <bit>
#include <stdexcept>

#include "foreword/tokenizer.h"
#include "merge.h"
#include "utf8.h"

namespace foreword {
namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t pair_hash(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }

// Byte-level BPE writes a byte as a printable character (GPT-2's `bytes_to_unicode`): printable Latin-1
// stands for itself, the 68 others are U+0100 and up, in order. The inverse; -1 for other characters.
constexpr auto kByteOfCharacter = [] {
  std::array<int16_t, 0x144> table{};
  table.fill(-1);
  int16_t next = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    table[static_cast<size_t>(printable ? byte : next++)] = byte;
  }
  return table;
}();

// The bytes that a token's spelling stands for; the spelling itself where it is none of that kind.
std::string spelled_bytes(std::string_view text) {
  std::string bytes;
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = utf8_length(text, begin);
    const uint32_t character = utf8_decode(text, begin, length);
    if (character >= kByteOfCharacter.size() || kByteOfCharacter[character] < 0) return std::string(text);
    bytes.push_back(static_cast<char>(kByteOfCharacter[character]));
    begin += length;
  }
  return bytes;
}

Vocabulary respelled(const Vocabulary& spelled) {
  size_t total = 0;
  const auto count = static_cast<int32_t>(spelled.size());
  for (int32_t id = 0; id < count; ++id) total += spelled.text(id).size();
  Vocabulary out(spelled.size(), total);
  for (int32_t id = 0; id < count; ++id) {
    const TokenType type = spelled.type(id);
    if (type == TokenType::Normal || type == TokenType::Unused) {
      out.add(spelled_bytes(spelled.text(id)), type);
    } else {
      out.add(spelled.text(id), type);  // matched whole: written as it is in the text
    }
  }
  return out;
}

}  // namespace

BpeTokenizer::BpeTokenizer(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges, PreTokenizer split,
                           bool whole_words)
    : Tokenizer(respelled(vocabulary)),
      merges_(std::bit_ceil(2 * merges.size() + 1)),
      split_(split),
      whole_words_(whole_words) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    bytes_[byte] = vocabulary_.find({&text, 1});
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) add_merge(merges[rank], static_cast<int32_t>(rank));
}

void BpeTokenizer::add_merge(std::string_view line, int32_t rank) {
  const size_t space = line.find(' ', 1);
  const std::string left = spelled_bytes(line.substr(0, space));
  const std::string right = space == std::string_view::npos ? std::string() : spelled_bytes(line.substr(space + 1));
  const int32_t left_id = vocabulary_.find(left), right_id = vocabulary_.find(right);
  const int32_t result = vocabulary_.find(left + right);
  if (left_id == kNoToken || right_id == kNoToken || result == kNoToken) {
    throw std::invalid_argument("merge " + std::to_string(rank) + " ('" + std::string(line) +
                                "') is not of two tokens that form a third");
  }
  const uint64_t pair = pair_key(left_id, right_id);
  size_t at = pair_hash(pair) & (merges_.size() - 1);
  while (merges_[at].pair != ~uint64_t{0} && merges_[at].pair != pair) at = (at + 1) & (merges_.size() - 1);
  if (merges_[at].pair != pair) merges_[at] = {pair, rank, result};  // the first of two equal lines counts
}

const BpeTokenizer::Merge* BpeTokenizer::find_merge(int32_t left, int32_t right) const {
  if (left == kNoToken || right == kNoToken) return nullptr;
  const uint64_t pair = pair_key(left, right);
  for (size_t at = pair_hash(pair) & (merges_.size() - 1); merges_[at].pair != ~uint64_t{0};
       at = (at + 1) & (merges_.size() - 1)) {
    if (merges_[at].pair == pair) return &merges_[at];
  }
  return nullptr;
}

void BpeTokenizer::encode_plain(std::string_view text, bool /*first*/, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  size_t begin = 0;
  for (const size_t end : split_words(split_, text)) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (whole_words_) {
      if (const int32_t token = vocabulary_.find(word); token != kNoToken) {
        ids.push_back(token);
        continue;
      }
    }
    symbols.clear();
    for (size_t i = 0; i < word.size(); ++i) append_symbol(symbols, i, 1, bytes_[static_cast<unsigned char>(word[i])]);
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> MergeOffer {
      const Merge* merge = find_merge(left.token, right.token);
      return merge ? MergeOffer{static_cast<double>(merge->rank), merge->result} : MergeOffer{};
    });
    for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
      const int32_t token = symbols[static_cast<size_t>(at)].token;
      if (token != kNoToken) ids.push_back(token);  // a byte without a token is dropped, as elsewhere
    }
  }
}

}  // namespace foreword
