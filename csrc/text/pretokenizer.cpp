// The splitting rules are regular expressions in their origin; each function below is one of them, written
// out. A rule is a sequence of stages: each cuts the pieces of the one before.
#include "foreword/pretokenizer.h"

#include <algorithm>
#include <cstdint>

#include "unicode.h"
#include "utf8.h"

namespace foreword {
namespace {

struct Character {
  uint32_t code;
  CharClass kind;
};
using Text = std::vector<Character>;

// Where the piece that starts at `i` ends; the text is looked at up to `n` only.
using Stage = size_t (*)(const Text& text, size_t i, size_t n);

template <typename Test>
size_t run_end(size_t i, size_t n, Test test) {
  while (i < n && test(i)) ++i;
  return i;
}

size_t run_end(const Text& text, size_t i, size_t n, CharClass kind) {
  return run_end(i, n, [&](size_t k) { return text[k].kind == kind; });
}

bool is_newline(const Character& c) { return c.code == '\r' || c.code == '\n'; }

// '(s|t|m|d|re|ve|ll): the length of the contraction at `i`, 0 for none.
size_t contraction(const Text& text, size_t i, size_t n, bool any_case) {
  if (text[i].code != '\'') return 0;
  const auto letter = [&](size_t k) -> uint32_t {
    if (k >= n) return 0;
    const uint32_t code = text[k].code;
    return any_case && code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
  };
  const uint32_t a = letter(i + 1), b = letter(i + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

// \s+(?!\S)|\s+: white space leaves its last character to the word that follows.
size_t white_space(const Text& text, size_t i, size_t n) {
  const size_t end = run_end(text, i, n, CharClass::Space);
  return end < n && end - i > 1 ? end - 1 : end;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t gpt2(const Text& text, size_t i, size_t n) {
  if (const size_t length = contraction(text, i, n, false)) return i + length;
  const size_t start = i + (text[i].code == ' ' && i + 1 < n);
  if (text[start].kind != CharClass::Space) return run_end(text, start, n, text[start].kind);
  return white_space(text, i, n);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
template <size_t kDigits>
size_t llama3(const Text& text, size_t i, size_t n) {
  if (const size_t length = contraction(text, i, n, true)) return i + length;
  const Character& c = text[i];
  if (c.kind == CharClass::Letter) return run_end(text, i, n, CharClass::Letter);
  if (c.kind == CharClass::Number) return run_end(text, i, std::min(n, i + kDigits), CharClass::Number);
  if (!is_newline(c) && i + 1 < n && text[i + 1].kind == CharClass::Letter) return run_end(text, i + 1, n, CharClass::Letter);
  const size_t start = i + (c.code == ' ' && i + 1 < n);
  if (text[start].kind == CharClass::Other) {
    const size_t end = run_end(text, start, n, CharClass::Other);
    return run_end(end, n, [&](size_t k) { return is_newline(text[k]); });
  }
  const size_t end = run_end(text, i, n, CharClass::Space);
  for (size_t k = end; k > i; --k) {
    if (is_newline(text[k - 1])) return k;
  }
  return white_space(text, i, n);
}

// A stage that cuts out what `match` finds (its end, or `i` for nothing) and leaves the rest between whole.
template <typename Match>
size_t cut_out(size_t i, size_t n, Match match) {
  if (const size_t end = match(i); end > i) return end;
  return run_end(i + 1, n, [&](size_t k) { return match(k) == k; });
}

// \p{N}
size_t single_number(const Text& text, size_t i, size_t n) {
  return cut_out(i, n, [&](size_t k) { return k + (text[k].kind == CharClass::Number); });
}

// \p{N}+
size_t number(const Text& text, size_t i, size_t n) {
  return run_end(i, n, [&](size_t k) { return (text[k].kind == CharClass::Number) == (text[i].kind == CharClass::Number); });
}

// [0-9][0-9][0-9]
size_t three_digits(const Text& text, size_t i, size_t n) {
  const auto digit = [&](size_t k) { return text[k].code >= '0' && text[k].code <= '9'; };
  return cut_out(i, n, [&](size_t k) { return run_end(k, std::min(n, k + 3), digit) == k + 3 ? k + 3 : k; });
}

// [\p{P}\$\+<=>\^~\|]+
size_t punctuation(const Text& text, size_t i, size_t n) {
  const auto in_set = [&](size_t k) {
    const uint32_t code = text[k].code;
    return is_punctuation(code) || (code < 0x80 && std::string_view("$+<=>^~|").find(static_cast<char>(code)) != std::string_view::npos);
  };
  return run_end(i, n, [&](size_t k) { return in_set(k) == in_set(i); });
}

std::vector<Stage> stages(PreTokenizer rules) {
  switch (rules) {
    case PreTokenizer::Gpt2: return {gpt2};
    case PreTokenizer::SmolLm: return {single_number, gpt2};
    case PreTokenizer::Llama3: return {llama3<3>};
    case PreTokenizer::Qwen2: return {llama3<1>};
    case PreTokenizer::Default: return {punctuation, gpt2, number, three_digits};
  }
  return {};
}

}  // namespace

std::vector<size_t> split_words(PreTokenizer rules, std::string_view text) {
  Text characters;
  std::vector<size_t> offsets;  // in bytes, where each character ends
  characters.reserve(text.size());
  offsets.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = utf8_length(text, begin);
    const uint32_t code = utf8_decode(text, begin, length);
    characters.push_back({code, char_class(code)});
    offsets.push_back(begin += length);
  }

  std::vector<size_t> ends;
  if (!characters.empty()) ends.push_back(characters.size());
  for (const Stage stage : stages(rules)) {
    std::vector<size_t> finer;
    size_t begin = 0;
    for (const size_t end : ends) {
      while (begin < end) finer.push_back(begin = stage(characters, begin, end));
    }
    ends = std::move(finer);
  }
  for (size_t& end : ends) end = offsets[end - 1];
  return ends;
}

}  // namespace foreword
