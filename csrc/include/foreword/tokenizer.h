// Text to token ids, exactly as llama.cpp defines them for GGUF vocabularies.
//
// A text is first cut at tokens that are matched whole (`SpecialTokens`); what lies between goes through
// one of two algorithms, both of which merge neighbouring symbols, best pair first:
//   * `SpmTokenizer`: SentencePiece-like; symbols are characters, the best pair is the one whose merged
//     text has the highest score in the vocabulary;
//   * `BpeTokenizer`: byte-level BPE; the text is cut into words, symbols are bytes, the best pair is the
//     one that comes first in the merge list.
// All strings are bytes (UTF-8). Nothing here knows of Python.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foreword/pretokenizer.h"

namespace foreword {

// GGUF's `tokenizer.ggml.token_type`.
enum class TokenType : int32_t { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };

constexpr int32_t kNoToken = -1;

// The tokens' bytes and types, with a lookup from bytes to id for tokens that text may turn into.
class Vocabulary {
 public:
  Vocabulary(size_t count, size_t total_bytes);

  // Tokens come in the order of their ids. Of two with the same bytes, the later is found.
  void add(std::string_view text, TokenType type);

  size_t size() const { return types_.size(); }
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  std::string_view text(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(starts_[i], starts_[i + 1] - starts_[i]);
  }

  // The id of a normal, user-defined or unused token; never a control, unknown or byte token.
  int32_t find(std::string_view text) const;

  size_t longest() const { return longest_; }

 private:
  struct Slot {
    uint32_t tag;  // the hash's upper half: most other keys are told apart without touching their bytes
    int32_t id = kNoToken;
  };
  std::string bytes_;
  std::vector<size_t> starts_{0};
  std::vector<TokenType> types_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t longest_ = 0;
};

// A piece of text: either one token, or text (token == kNoToken) in [begin, end).
struct Piece {
  size_t begin, end;
  int32_t token = kNoToken;
};

// A set of tokens that are matched whole: longest first, and of equal ones the leftmost.
class SpecialTokens {
 public:
  void add(std::string_view text, int32_t id);

  // The token with exactly these bytes, or kNoToken.
  int32_t find(std::string_view text) const;

  // Cuts a text at every match. O(n log n) whatever the text.
  std::vector<Piece> split(std::string_view text) const;

  // Returns the text with `guard` put wherever it could take part in a token of the set: inside each whole
  // match, and at an end that could grow into one beside other text (ends are looked at without the white
  // space around the text, which templates trim).
  std::string protect(std::string_view text, std::string_view guard) const;

 private:
  struct Node {
    char byte = 0;
    int32_t token = kNoToken;
    int32_t child = -1, sibling = -1;
  };
  int32_t step(int32_t node, char byte) const;
  int32_t longest_match(std::string_view text, size_t begin, size_t end, size_t& length) const;
  bool ends_with_prefix(std::string_view text) const;
  bool starts_inside(std::string_view text) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);  // a trie; node 0 is the root
  std::vector<std::string> texts_;
  size_t longest_ = 0;
};

struct Symbol;  // csrc/text/merge.h

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // User-defined tokens are always matched whole; control and unknown tokens only with `parse_special`,
  // which also drops every `kGuard` from the text after it has been cut at them.
  // `first` is false for text that follows one of its `cuts`.
  std::vector<int32_t> encode(std::string_view text, bool parse_special, bool first = true) const;

  // Byte offsets where a text can be cut so that the ids of the pieces, one after the other, are its ids,
  // whatever stands before and after; each at least `spacing` bytes after the one before. All lie between
  // an ASCII letter and a space that another ASCII letter follows: every splitting rule ends a word there.
  std::vector<size_t> cuts(std::string_view text, size_t spacing) const;

  // The id of a token of any type but byte by its spelling, or kNoToken.
  int32_t find(std::string_view text) const;

  // The text with guards against becoming control tokens, for putting into a prompt template.
  std::string protect(std::string_view text) const { return control_.protect(text, kGuard); }

  // The bytes that a token stands for in a text.
  virtual std::string token_bytes(int32_t id) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // U+D800 as UTF-8 would have it: no valid text holds it.
  static constexpr std::string_view kGuard = "\xED\xA0\x80";

 protected:
  explicit Tokenizer(Vocabulary vocabulary);

  // Appends the ids of text in which nothing is matched whole. `first` says that the text starts the
  // prompt or follows a token that was matched whole.
  virtual void encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const = 0;

  // Whether no token that text turns into holds this letter and a space after it.
  virtual bool word_ends_after(char letter) const = 0;

  Vocabulary vocabulary_;

 private:
  void encode_text(std::string_view text, bool first, std::vector<int32_t>& ids) const;

  SpecialTokens control_, user_defined_;
  bool has_cuts_ = true;  // no token that is matched whole reaches across one
};

class SpmTokenizer final : public Tokenizer {
 public:
  // `scores` has one entry per token. Throws std::invalid_argument for a malformed byte token, or where
  // neither byte tokens nor `unknown` could stand for a character that is not in the vocabulary.
  SpmTokenizer(Vocabulary vocabulary, std::vector<float> scores, int32_t unknown, bool add_space_prefix);

  std::string token_bytes(int32_t id) const override;

 private:
  void encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const override;
  bool word_ends_after(char letter) const override { return !before_space_[static_cast<unsigned char>(letter)]; }

  void encode_word(std::string_view word, std::vector<Symbol>& symbols, std::vector<int32_t>& ids) const;

  std::vector<float> scores_;
  int32_t bytes_[256];
  // Bytes that stand before a space inside some token. After any other byte, a space starts a new word:
  // no token reaches across, so words are merged one by one.
  bool before_space_[256] = {};
  bool add_space_prefix_;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // `vocabulary` in GGUF's spelling, where printable characters stand for bytes. `merges` are "left right",
  // best first. With `whole_words`, a word that is a token is not merged at all. Throws
  // std::invalid_argument for a merge whose parts or result are not in the vocabulary.
  BpeTokenizer(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges, PreTokenizer split,
               bool whole_words);

  std::string token_bytes(int32_t id) const override { return std::string(vocabulary_.text(id)); }

 private:
  struct Merge {
    uint64_t pair = ~uint64_t{0};
    int32_t rank, result;
  };
  void encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const override;
  bool word_ends_after(char) const override { return true; }
  void add_merge(std::string_view line, int32_t rank);
  const Merge* find_merge(int32_t left, int32_t right) const;

  std::vector<Merge> merges_;  // open addressing by pair, a power of two
  int32_t bytes_[256];
  PreTokenizer split_;
  bool whole_words_;
};

}  // namespace foreword
