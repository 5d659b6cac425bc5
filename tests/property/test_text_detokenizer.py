"""Incremental detokenising equals decoding everything at once."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreword.text.tokenizer import Tokenizer
from foreword.weights import registry
from foreword.weights.gguf import GGUFFile

# SmolLM2's vocabulary lacks some bytes (of control characters and of the planes from U+40000 on);
# Gemma's has no spelling for U+2581, which stands for a space.
CHARACTERS = st.characters(
    min_codepoint=0x20, max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters="▁"
)


@cache
def load(name: str) -> Tokenizer:
    return Tokenizer.load(GGUFFile.open(registry.resolve(name)))


@pytest.mark.parametrize("name", ["smollm2:135m", "gemma3:270m"])
@settings(max_examples=200)
@given(data=st.data(), skip_special=st.booleans())
def test_pushes_join_to_what_decode_gives(
    name: str, data: st.DataObject, skip_special: bool
) -> None:
    tokenizer = load(name)
    # Low ids are control and byte tokens, parts of characters among them.
    ids = st.integers(0, tokenizer.vocab_size - 1) | st.integers(0, 520)
    tokens = data.draw(st.lists(ids, max_size=40))
    detokenizer = tokenizer.detokenizer(skip_special=skip_special)
    text = "".join(map(detokenizer.push, tokens)) + detokenizer.flush()
    assert text == tokenizer.decode(tokens, skip_special=skip_special)
    if not skip_special:
        assert text == b"".join(map(tokenizer.token_bytes, tokens)).decode("utf-8", "replace")


@pytest.mark.parametrize("name", ["smollm2:135m", "gemma3:270m"])
@settings(max_examples=200)
@given(text=st.text(CHARACTERS, max_size=60))
def test_characters_arrive_whole(name: str, text: str) -> None:
    tokenizer = load(name)
    detokenizer = tokenizer.detokenizer()
    shown = ""
    for token_id in tokenizer.encode(text, add_bos=False):
        shown += detokenizer.push(token_id)
        assert text.startswith(shown)
    assert detokenizer.flush() == ""
    assert shown == text


def test_an_incomplete_tail_is_one_replacement_character() -> None:
    gemma = load("gemma3:270m")
    byte = lambda value: 238 + value  # noqa: E731
    detokenizer = gemma.detokenizer()
    assert [detokenizer.push(byte(b)) for b in "😀".encode()] == ["", "", "", "😀"]
    assert [detokenizer.push(byte(b)) for b in b"\xf0\x9f"] == ["", ""]
    assert detokenizer.flush() == "\ufffd"
