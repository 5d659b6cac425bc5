"""What a GGUF file says about its tokenizer (the ``tokenizer.*`` keys)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from foreword import _core
from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.weights.gguf import GGUFFile
from foreword.weights.metadata import StringArray

NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # values of tokenizer.ggml.token_type

T = TypeVar("T")
D = TypeVar("D")


class _Keys:
    """Typed reading of a file's metadata; every error names the key."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file

    def fail(self, key: str, message: str) -> NoReturn:
        raise ModelFileError(self.file.path, key, message)

    def optional(self, key: str, kind: type[T], default: D) -> T | D:
        value = self.file.metadata.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            self.fail(key, f"must be of type {kind.__name__}, not {type(value).__name__}")
        return value

    def required(self, key: str, kind: type[T]) -> T:
        value = self.optional(key, kind, None)
        return self.fail(key, "is missing") if value is None else value

    def numbers(self, key: str, letter: str) -> array[Any] | None:
        """A new array of numbers of the type that `array` knows by ``letter``."""
        value = self.optional(key, array, None)
        try:
            return None if value is None else array(letter, value)
        except (TypeError, OverflowError) as error:
            self.fail(key, str(error))

    def token_id(self, key: str, vocab_size: int) -> int | None:
        value = self.optional(key, int, None)
        if value is not None and not 0 <= value < vocab_size:
            self.fail(key, f"{value} is outside the vocabulary of {vocab_size}")
        return value

    def unsupported(self, key: str, value: str, known: list[str]) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.file.path}: {key} is {value!r}; foreword knows {', '.join(known)}"
        )

    @contextmanager
    def explained(self, key: str) -> Iterator[None]:
        """Turns the C++ core's complaints into errors about ``key``."""
        try:
            yield
        except ValueError as error:
            raise ModelFileError(self.file.path, key, str(error)) from error


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    """How a byte-level BPE cuts text into words, and what goes with it by default."""

    rules: _core.PreTokenizer
    whole_words: bool = False  # a word that is a token is not merged from its bytes
    add_bos: bool = False


_LLAMA3 = _PreTokenizer(_core.PreTokenizer.LLAMA3, whole_words=True, add_bos=True)
_PRE_TOKENIZERS = {
    "default": _PreTokenizer(_core.PreTokenizer.DEFAULT),
    "gpt-2": _PreTokenizer(_core.PreTokenizer.GPT2),
    "phi-2": _PreTokenizer(_core.PreTokenizer.GPT2),
    "smollm": _PreTokenizer(_core.PreTokenizer.SMOLLM),
    "starcoder": _PreTokenizer(_core.PreTokenizer.SMOLLM),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _PreTokenizer(_core.PreTokenizer.QWEN2),
    "deepseek-r1-qwen": _PreTokenizer(_core.PreTokenizer.QWEN2),
}

# Tokens that end a turn or a text, by the names that model families give them.
_END_TOKENS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<|eot|>",
    "<EOT>",
    "<｜end▁of▁sentence｜>",
)
# Never matched in a user's text even where the file does not mark them as control tokens. "</s>"
# does not end a text by its name alone: Gemma's vocabulary has it as the HTML tag.
_CONTROL_LOOKING = (*_END_TOKENS, "</s>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer's algorithm and data, and what the file says about their use.

    Attributes:
        core: the C++ tokenizer.
        bos_token_id, eos_token_id: None where the file names none.
        end_token_ids: ``eos_token_id`` and the end-of-turn tokens that the vocabulary has.
        special_ids: tokens that are no text: control tokens, and those that end a text.
        add_bos: whether a prompt begins with the BOS token.
        add_space_prefix: whether a space is put before the first word.
        chat_template: Jinja source, or None.
    """

    core: _core.Tokenizer
    bos_token_id: int | None
    eos_token_id: int | None
    end_token_ids: frozenset[int]
    special_ids: frozenset[int]
    add_bos: bool
    add_space_prefix: bool
    chat_template: str | None


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Build the tokenizer that a model file describes.

    Raises:
        UnsupportedModelError: a kind of tokenizer that foreword does not know.
        ModelFileError: a key is missing, of the wrong type, or contradicts another.
    """
    keys = _Keys(file)
    pre = _pre_tokenizer(keys)
    add_space_prefix = keys.optional("tokenizer.ggml.add_space_prefix", bool, pre is None)
    types = _token_types(keys)
    core = _build(keys, types, pre, add_space_prefix)
    special = core.special_ids
    unmarked = [token for token in _find(core, _CONTROL_LOOKING) if types[token] != CONTROL]
    if unmarked:  # such files exist, and in them a user could end a turn by writing its end
        for token in unmarked:
            types[token] = CONTROL
        core = _build(keys, types, pre, add_space_prefix)

    eos = keys.token_id("tokenizer.ggml.eos_token_id", core.vocab_size)
    end = frozenset(_find(core, _END_TOKENS)) | ({eos} if eos is not None else set())
    return Vocabulary(
        core=core,
        bos_token_id=keys.token_id("tokenizer.ggml.bos_token_id", core.vocab_size),
        eos_token_id=eos,
        end_token_ids=end,
        special_ids=end.union(special),
        add_bos=keys.optional("tokenizer.ggml.add_bos_token", bool, pre is None or pre.add_bos),
        add_space_prefix=add_space_prefix and pre is None,
        chat_template=keys.optional("tokenizer.chat_template", str, None),
    )


def _pre_tokenizer(keys: _Keys) -> _PreTokenizer | None:
    """How words are split; None for SentencePiece-like vocabularies, which do not split."""
    model = keys.required("tokenizer.ggml.model", str)
    if model not in ("gpt2", "llama"):
        raise keys.unsupported("tokenizer.ggml.model", model, ["gpt2", "llama"])
    if model == "llama":
        return None
    name = keys.optional("tokenizer.ggml.pre", str, "default")
    if name not in _PRE_TOKENIZERS:
        raise keys.unsupported("tokenizer.ggml.pre", name, sorted(_PRE_TOKENIZERS))
    return _PRE_TOKENIZERS[name]


def _token_types(keys: _Keys) -> array[int]:
    types = keys.numbers("tokenizer.ggml.token_type", "i")
    if types is None:
        types = array("i", [NORMAL]) * len(keys.required("tokenizer.ggml.tokens", StringArray))
    return types


def _build(
    keys: _Keys, types: array[int], pre: _PreTokenizer | None, add_space_prefix: bool
) -> _core.Tokenizer:
    data, offset, count = keys.required("tokenizer.ggml.tokens", StringArray).location
    if pre is not None:
        _, merges_offset, merges = keys.required("tokenizer.ggml.merges", StringArray).location
        with keys.explained("tokenizer.ggml.merges"):
            return _core.Tokenizer.bpe(
                data, offset, count, types, merges_offset, merges, pre.rules, pre.whole_words
            )
    scores = keys.numbers("tokenizer.ggml.scores", "f")
    if scores is None:
        keys.fail("tokenizer.ggml.scores", "is missing")
    unknown = keys.token_id("tokenizer.ggml.unknown_token_id", count)
    with keys.explained("tokenizer.ggml.tokens"):
        return _core.Tokenizer.spm(data, offset, count, types, scores, unknown, add_space_prefix)


def _find(core: _core.Tokenizer, texts: Sequence[str]) -> list[int]:
    """The ids of those texts that are tokens of the vocabulary."""
    found = (core.find(text.encode()) for text in texts)
    return [token_id for token_id in found if token_id is not None]
