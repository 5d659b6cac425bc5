"""Ids of a text that is tokenised in pieces are those of the whole text."""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vocabularies import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    bpe_metadata,
    bytes_tokens,
    spm_metadata,
    write_gguf,
)

from foreword import _core
from foreword.text.piece_memo import PieceMemo
from foreword.text.vocabulary import read_vocabulary
from foreword.weights import registry
from foreword.weights.gguf import GGUFFile

FAMILIES = ["default", "gpt-2", "smollm", "llama-bpe", "qwen2"]
MODELS = ["smollm2:135m", "gemma3:270m"]

# What ends or joins words somewhere, control tokens and their parts, and marks of `protect`.
BITS = ["a", "b", " ", " a", "b c", "  ", "\n", " \n", "\r\n", "\t", "'s", "'", "’re", "12", "3456"]
BITS += [
    "é",
    "e\u0301",
    "\u0301",
    "中",
    "ا",
    "👩‍🚀",
    "\u00a0",
    "\u2581",
    "\u2581\u2581",
    ".",
    "...",
    "-",
]
BITS += [
    "<|im_end|>",
    "<|im_start|>user\n",
    "<start_of_turn>",
    "<|",
    "|>",
    "<h1>",
    "the cat",
    "\ud800",
]
TEXTS = st.lists(st.sampled_from(BITS) | st.characters(codec="utf-8"), max_size=40).map("".join)

PAIRS = [("a", "b"), ("b", "c"), (" ", "a"), (" a", "b"), ("t", "h"), ("th", "e"), (" ", "c")]
PAIRS += [("1", "2"), ("\n", "\n"), (" ", " "), (" ", "\n"), ("'", "s")]
SPM = [
    ("<unk>", 0.0, CONTROL),
    *bytes_tokens(),
    ("a b", -0.1, USER_DEFINED),
    ("<|im_end|>", 0.0, CONTROL),
]
WORDS = ["▁", "a", "b", "c", "e", "▁a", "ab", "▁ab", "b▁", "▁▁", "the", "th", "\n\n", "e▁c", "▁c"]


def core_of(metadata: dict[str, object]) -> _core.Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return read_vocabulary(write_gguf(Path(folder) / "vocabulary.gguf", metadata)).core


@cache
def core(name: str) -> _core.Tokenizer:
    if name in MODELS:
        return read_vocabulary(GGUFFile.open(registry.resolve(name))).core
    if name in FAMILIES:
        return core_of(bpe_metadata(name, PAIRS, control=["<|im_end|>", "<|im_start|>"]))
    spaced = [entry for entry in SPM if entry[0] != "a b" or name == "spm, words joined"]
    words = [(word, -float(i), NORMAL) for i, word in enumerate(WORDS)]
    return core_of(spm_metadata([*spaced, *words], **{"tokenizer.ggml.add_space_prefix": True}))


@pytest.mark.parametrize("name", [*FAMILIES, "spm", "spm, words joined", *MODELS])
@settings(max_examples=250)
@given(text=TEXTS, spacing=st.integers(1, 24), parse_special=st.booleans())
def test_pieces_have_the_ids_of_the_whole(
    name: str, text: str, spacing: int, parse_special: bool
) -> None:
    data = text.encode("utf-8", "surrogatepass")
    tokenizer = core(name)
    ends = [*tokenizer.cuts(data, spacing), len(data)]
    pieces = tokenizer.encode_pieces(data, ends, parse_special, True)
    assert list(chain(*pieces)) == tokenizer.encode(data, parse_special)
    assert all(end - begin >= spacing for begin, end in zip([0, *ends], ends[:-1], strict=False))


@pytest.mark.parametrize("name", ["gpt-2", *MODELS])
@settings(max_examples=15)
@given(
    parts=st.lists(TEXTS, min_size=1, max_size=4),
    filler=st.sampled_from(BITS),
    times=st.integers(1, 6),
)
def test_a_memo_of_growing_texts_gives_what_the_tokenizer_gives(
    name: str, parts: list[str], filler: str, times: int
) -> None:
    tokenizer = core(name)
    memo = PieceMemo(tokenizer, max_bytes=40_000)
    text = (filler + "so on and ") * 900 * times
    for part in [*parts, ""]:
        text += part
        data = text.encode("utf-8", "surrogatepass")
        assert memo.encode(data, True) == tokenizer.encode(data, True)
    assert memo.num_bytes <= 40_000


def test_there_are_cuts_where_words_end_and_none_where_a_token_may_go_on() -> None:
    assert core("gpt-2").cuts(b"one two three 4 five", 1) == [3, 7]
    assert core("gpt-2").cuts(b"one two three 4 five", 4) == [7]
    assert core("spm").cuts(b"one two cab cat", 1) == [7]  # "e▁c", "b▁" are tokens
    assert core("spm, words joined").cuts(b"one two cab cat", 1) == []
