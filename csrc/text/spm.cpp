#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "foreword/tokenizer.h"
#include "merge.h"
#include "utf8.h"

namespace foreword {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 stands for a space in the vocabulary

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    out.append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  return out.append(text.substr(begin));
}

// The value of "<0x41>"; exactly two hexadecimal digits.
unsigned char byte_value(std::string_view text) {
  unsigned value = 0;
  const bool framed = text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
  if (framed) {
    const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
    if (error == std::errc{} && end == text.data() + 5) return static_cast<unsigned char>(value);
  }
  throw std::invalid_argument("the byte token '" + std::string(text) + "' is not of the form <0xAB>");
}

}  // namespace

SpmTokenizer::SpmTokenizer(Vocabulary vocabulary, std::vector<float> scores, int32_t unknown, bool add_space_prefix)
    : Tokenizer(std::move(vocabulary)), scores_(std::move(scores)), add_space_prefix_(add_space_prefix) {
  if (scores_.size() != vocabulary_.size()) throw std::invalid_argument("there is not one score for each token");
  std::fill(std::begin(bytes_), std::end(bytes_), unknown);
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary_.size()); ++id) {
    const std::string_view text = vocabulary_.text(id);
    if (vocabulary_.type(id) == TokenType::Byte) bytes_[byte_value(text)] = id;
    for (size_t at = text.find(kSpace, 1); at != std::string_view::npos; at = text.find(kSpace, at + 1)) {
      before_space_[static_cast<unsigned char>(text[at - 1])] = true;
    }
  }
  if (std::find(std::begin(bytes_), std::end(bytes_), kNoToken) != std::end(bytes_)) {
    throw std::invalid_argument("there are neither all 256 byte tokens nor a token for unknown characters");
  }
}

std::string SpmTokenizer::token_bytes(int32_t id) const {
  switch (vocabulary_.type(id)) {
    case TokenType::Byte: return std::string(1, static_cast<char>(byte_value(vocabulary_.text(id))));
    case TokenType::Normal:
    case TokenType::Unused: return replace_all(vocabulary_.text(id), kSpace, " ");
    default: return std::string(vocabulary_.text(id));
  }
}

void SpmTokenizer::encode_plain(std::string_view raw, bool first, std::vector<int32_t>& ids) const {
  const std::string spaced = (add_space_prefix_ && first ? std::string(kSpace) : std::string()) + replace_all(raw, " ", kSpace);
  const std::string_view text = spaced;
  std::vector<Symbol> symbols;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(kSpace, begin + 1);
    while (end != std::string_view::npos && before_space_[static_cast<unsigned char>(text[end - 1])]) {
      end = text.find(kSpace, end + 1);
    }
    encode_word(text.substr(begin, end - begin), symbols, ids);
    begin = std::min(end, text.size());
  }
}

void SpmTokenizer::encode_word(std::string_view word, std::vector<Symbol>& symbols, std::vector<int32_t>& ids) const {
  symbols.clear();
  for (size_t begin = 0; begin < word.size();) {
    const size_t length = utf8_length(word, begin);
    append_symbol(symbols, begin, length, vocabulary_.find(word.substr(begin, length)));
    begin += length;
  }
  merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) -> MergeOffer {
    const int32_t token = vocabulary_.find(word.substr(left.begin, left.length + right.length));
    if (token == kNoToken) return {};
    return {-static_cast<double>(scores_[static_cast<size_t>(token)]), token};
  });
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(at)];
    if (symbol.token != kNoToken) {
      ids.push_back(symbol.token);
    } else {  // a character that the vocabulary lacks
      for (const char byte : word.substr(symbol.begin, symbol.length)) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    }
  }
}

}  // namespace foreword
