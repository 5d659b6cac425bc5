// Tokenisers.
#include "bindings.h"
#include "foreword/tokenizer.h"
#include "gguf_strings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace nb = nanobind;

namespace foreword {
namespace {

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<std::string_view> strings(const Bytes& data, uint64_t offset, uint64_t count) {
  std::vector<std::string_view> out;
  const auto [whole, end] = walk_strings(data, offset, count, [&](const char* text, uint64_t length) { out.emplace_back(text, length); });
  if (whole < count) throw std::invalid_argument("a string passes the end of the data");
  return out;
}

Vocabulary vocabulary(const Bytes& data, uint64_t offset, uint64_t count, const Array<int32_t>& types) {
  const std::vector<std::string_view> texts = strings(data, offset, count);
  if (types.size() != texts.size()) throw std::invalid_argument("there is not one type for each token");
  size_t total = 0;
  for (const std::string_view text : texts) total += text.size();
  Vocabulary out(texts.size(), total);
  for (size_t i = 0; i < texts.size(); ++i) out.add(texts[i], static_cast<TokenType>(types(i)));
  return out;
}

std::unique_ptr<Tokenizer> spm(Bytes data, uint64_t offset, uint64_t count, Array<int32_t> types, Array<float> scores,
                               std::optional<int32_t> unknown, bool add_space_prefix) {
  nb::gil_scoped_release unlocked;
  return std::make_unique<SpmTokenizer>(vocabulary(data, offset, count, types),
                                        std::vector<float>(scores.data(), scores.data() + scores.size()),
                                        unknown.value_or(kNoToken), add_space_prefix);
}

std::unique_ptr<Tokenizer> bpe(Bytes data, uint64_t offset, uint64_t count, Array<int32_t> types, uint64_t merges_offset,
                               uint64_t merges_count, PreTokenizer split, bool whole_words) {
  nb::gil_scoped_release unlocked;
  return std::make_unique<BpeTokenizer>(vocabulary(data, offset, count, types), strings(data, merges_offset, merges_count),
                                        split, whole_words);
}

std::string_view view(const nb::bytes& text) { return {text.c_str(), text.size()}; }

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

std::vector<int32_t> encode(const Tokenizer& self, nb::bytes text, bool parse_special) {
  const std::string_view utf8 = view(text);
  nb::gil_scoped_release unlocked;
  return self.encode(utf8, parse_special);
}

std::vector<std::vector<int32_t>> encode_pieces(const Tokenizer& self, nb::bytes text, const std::vector<size_t>& ends,
                                                bool parse_special, bool first) {
  const std::string_view utf8 = view(text);
  nb::gil_scoped_release unlocked;
  std::vector<std::vector<int32_t>> ids;
  size_t begin = 0;
  for (const size_t end : ends) {
    if (end < begin || end > utf8.size()) throw std::invalid_argument("the ends of pieces must ascend within the text");
    ids.push_back(self.encode(utf8.substr(begin, end - begin), parse_special, first && begin == 0));
    begin = end;
  }
  return ids;
}

std::vector<size_t> cuts(const Tokenizer& self, nb::bytes text, size_t spacing) {
  const std::string_view utf8 = view(text);
  nb::gil_scoped_release unlocked;
  return self.cuts(utf8, spacing);
}

std::optional<int32_t> find(const Tokenizer& self, nb::bytes text) {
  const int32_t token = self.find(view(text));
  return token == kNoToken ? std::nullopt : std::optional(token);
}

// Control and unknown tokens: those that stand for no text.
std::vector<int32_t> special_ids(const Tokenizer& self) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < static_cast<int32_t>(self.vocabulary().size()); ++id) {
    const TokenType type = self.vocabulary().type(id);
    if (type == TokenType::Control || type == TokenType::Unknown) ids.push_back(id);
  }
  return ids;
}

int32_t checked(const Tokenizer& self, int64_t id) {
  if (id < 0 || static_cast<uint64_t>(id) >= self.vocabulary().size()) throw nb::index_error("no such token");
  return static_cast<int32_t>(id);
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::enum_<PreTokenizer>(m, "PreTokenizer")
      .value("GPT2", PreTokenizer::Gpt2)
      .value("SMOLLM", PreTokenizer::SmolLm)
      .value("LLAMA3", PreTokenizer::Llama3)
      .value("QWEN2", PreTokenizer::Qwen2)
      .value("DEFAULT", PreTokenizer::Default);
  m.def("split_words", [](PreTokenizer rules, nb::bytes text) { return split_words(rules, view(text)); }, nb::arg("rules"),
        nb::arg("text"));

  nb::class_<Tokenizer>(m, "Tokenizer")
      .def_static("spm", &spm, nb::arg("data"), nb::arg("offset"), nb::arg("count"), nb::arg("types"), nb::arg("scores"),
                  nb::arg("unknown").none(), nb::arg("add_space_prefix"))
      .def_static("bpe", &bpe, nb::arg("data"), nb::arg("offset"), nb::arg("count"), nb::arg("types"),
                  nb::arg("merges_offset"), nb::arg("merges_count"), nb::arg("split"), nb::arg("whole_words"))
      .def("encode", &encode, nb::arg("text"), nb::arg("parse_special"))
      .def("encode_pieces", &encode_pieces, nb::arg("text"), nb::arg("ends"), nb::arg("parse_special"), nb::arg("first"))
      .def("cuts", &cuts, nb::arg("text"), nb::arg("spacing"))
      .def("find", &find, nb::arg("text"))
      .def("protect", [](const Tokenizer& self, nb::bytes text) { return to_bytes(self.protect(view(text))); }, nb::arg("text"))
      .def("token_bytes", [](const Tokenizer& self, int64_t id) { return to_bytes(self.token_bytes(checked(self, id))); },
           nb::arg("token_id"))
      .def_prop_ro("special_ids", &special_ids)
      .def_prop_ro("vocab_size", [](const Tokenizer& self) { return self.vocabulary().size(); });
}

}  // namespace foreword
