// How byte-level BPE cuts text into words before merging.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace foreword {

// The families of splitting rules; GGUF files name them in `tokenizer.ggml.pre`.
enum class PreTokenizer { Gpt2, SmolLm, Llama3, Qwen2, Default };

// Byte offsets where the words of a UTF-8 text end, in order; the last is the text's size.
std::vector<size_t> split_words(PreTokenizer rules, std::string_view text);

}  // namespace foreword
