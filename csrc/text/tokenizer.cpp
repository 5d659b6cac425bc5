#include "foreword/tokenizer.h"

#include <algorithm>

namespace foreword {
namespace {

std::string without(std::string_view text, std::string_view part) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, begin)) {
    out.append(text.substr(begin, at - begin));
    begin = at + part.size();
  }
  out.append(text.substr(begin));
  return out;
}

constexpr bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

bool spans_words(std::string_view token) {
  for (size_t at = token.find(' ', 1); at != std::string_view::npos; at = token.find(' ', at + 1)) {
    if (is_letter(token[at - 1])) return true;
  }
  return false;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary_.size()); ++id) {
    const TokenType type = vocabulary_.type(id);
    if (type == TokenType::Control || type == TokenType::Unknown) control_.add(vocabulary_.text(id), id);
    if (type == TokenType::UserDefined) user_defined_.add(vocabulary_.text(id), id);
    if (type != TokenType::Normal && type != TokenType::Unused && spans_words(vocabulary_.text(id))) has_cuts_ = false;
  }
}

int32_t Tokenizer::find(std::string_view text) const {
  const int32_t token = vocabulary_.find(text);
  return token != kNoToken ? token : control_.find(text);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special, bool first) const {
  std::vector<int32_t> ids;
  if (!parse_special) {
    encode_text(text, first, ids);
    return ids;
  }
  for (const Piece& piece : control_.split(text)) {
    if (piece.token != kNoToken) {
      ids.push_back(piece.token);
    } else {
      encode_text(without(text.substr(piece.begin, piece.end - piece.begin), kGuard), first, ids);
    }
    first = piece.token != kNoToken;
  }
  return ids;
}

std::vector<size_t> Tokenizer::cuts(std::string_view text, size_t spacing) const {
  std::vector<size_t> found;
  if (!has_cuts_) return found;
  spacing = std::max<size_t>(1, spacing);
  for (size_t at = text.find(' ', spacing); at < text.size() - 1; at = text.find(' ', at + 1)) {
    if (!is_letter(text[at - 1]) || !is_letter(text[at + 1]) || !word_ends_after(text[at - 1])) continue;
    found.push_back(at);
    at += spacing - 1;
  }
  return found;
}

void Tokenizer::encode_text(std::string_view text, bool first, std::vector<int32_t>& ids) const {
  for (const Piece& piece : user_defined_.split(text)) {
    if (piece.token != kNoToken) {
      ids.push_back(piece.token);
    } else {
      encode_plain(text.substr(piece.begin, piece.end - piece.begin), first, ids);
    }
    first = piece.token != kNoToken;
  }
}

}  // namespace foreword
