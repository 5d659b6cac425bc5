"""SentencePiece-like tokenizers on small vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.vocabularies import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    bytes_tokens,
    make_tokenizer,
    spm_metadata,
)

from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.text.tokenizer import Tokenizer

SPECIAL = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]


def vocabulary(
    words: dict[str, float], user_defined: tuple[str, ...] = (), with_bytes: bool = True
) -> list[tuple[str, float, int]]:
    return [
        *SPECIAL,
        *(bytes_tokens() if with_bytes else []),
        *((word, score, NORMAL) for word, score in words.items()),
        *((word, -1000.0, USER_DEFINED) for word in user_defined),
    ]


def texts(tokenizer: Tokenizer, text: str, parse_special: bool = False) -> list[str]:
    ids = tokenizer.encode(text, add_bos=False, parse_special=parse_special)
    return [tokenizer.token_text(i) for i in ids]


WORDS = {
    "▁": -9.0,
    "a": -9.0,
    "b": -9.0,
    "c": -9.0,
    "ab": -1.0,
    "bc": -2.0,
    "abc": -3.0,
    "▁a": -4.0,
}


def test_the_best_score_merges_first(tmp_path: Path) -> None:
    metadata = spm_metadata(vocabulary(WORDS), **{"tokenizer.ggml.add_space_prefix": False})
    tokenizer = make_tokenizer(tmp_path / "model.gguf", metadata)
    assert texts(tokenizer, "abc") == ["abc"]
    assert texts(tokenizer, "bcbc") == ["bc", "bc"]
    assert texts(tokenizer, "aab c a") == ["a", "ab", " ", "c", " a"]


def test_equal_scores_merge_from_the_left(tmp_path: Path) -> None:
    """Even where the two merges are of different parts, which a ranked list of pairs gets wrong."""
    words = {"a": -9.0, "aa": -1.0, "aaa": -2.0}
    metadata = spm_metadata(vocabulary(words), **{"tokenizer.ggml.add_space_prefix": False})
    tokenizer = make_tokenizer(tmp_path / "model.gguf", metadata)
    assert texts(tokenizer, "aaaaa") == ["aa", "aaa"]
    assert texts(tokenizer, "aaa") == ["aaa"]


def test_characters_that_are_no_token_become_bytes(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path / "model.gguf", spm_metadata(vocabulary(WORDS)))
    ids = tokenizer.encode("aé😀", add_bos=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [
        b" a", b"\xc3", b"\xa9", b"\xf0", b"\x9f", b"\x98", b"\x80",
    ]  # fmt: skip
    assert tokenizer.decode(ids) == "aé😀"


def test_without_byte_tokens_they_become_unknown(tmp_path: Path) -> None:
    entries = vocabulary(WORDS, with_bytes=False)
    metadata = spm_metadata(entries, **{"tokenizer.ggml.unknown_token_id": 0})
    tokenizer = make_tokenizer(tmp_path / "model.gguf", metadata)
    assert tokenizer.encode("éb", add_bos=False) == [3, 0, 0, 5]
    with pytest.raises(ModelFileError, match="byte tokens"):
        make_tokenizer(tmp_path / "other.gguf", spm_metadata(entries))


def test_space_prefix(tmp_path: Path) -> None:
    """A space goes before the text and after each token that is matched whole."""
    entries = vocabulary(WORDS, user_defined=("<x>",))
    tokenizer = make_tokenizer(tmp_path / "model.gguf", spm_metadata(entries))
    assert texts(tokenizer, "a<x>a a") == [" a", "<x>", " a", " a"]
    assert texts(tokenizer, "a</s>a", parse_special=True) == [" a", "</s>", " a"]
    assert texts(tokenizer, "") == []
    ids = tokenizer.encode("a a", add_bos=False)
    assert tokenizer.decode(ids) == "a a"
    follows = tokenizer.detokenizer(continues_text=True)
    assert "".join(map(follows.push, ids)) == " a a"


def test_whole_tokens_longest_first(tmp_path: Path) -> None:
    """Longest first over the whole text, as llama.cpp does it; not from left to right."""
    entries = vocabulary(
        {**WORDS, "d": -9.0}, user_defined=("cd", "bcd", "ab", "\n", "\n\n", "\n\n\n")
    )
    metadata = spm_metadata(entries, **{"tokenizer.ggml.add_space_prefix": False})
    tokenizer = make_tokenizer(tmp_path / "model.gguf", metadata)
    assert texts(tokenizer, "abcd") == ["a", "bcd"]
    assert texts(tokenizer, "abcabcd") == ["ab", "c", "a", "bcd"]
    assert texts(tokenizer, "\n" * 7) == ["\n\n\n", "\n\n\n", "\n"]


def test_text_never_merges_into_a_control_token(tmp_path: Path) -> None:
    words = {**dict.fromkeys("</s>", -9.0), "</": -1.0, "s>": -1.0}
    metadata = spm_metadata(vocabulary(words), **{"tokenizer.ggml.add_space_prefix": False})
    tokenizer = make_tokenizer(tmp_path / "model.gguf", metadata)
    assert texts(tokenizer, "</s>") == ["</", "s>"]
    assert tokenizer.encode("</s>", add_bos=False, parse_special=True) == [2]


@pytest.mark.parametrize("name", ["<0x-1>", "<0xZZ>", "<0x100>", "<0x 1>", "0x41", ""])
def test_byte_tokens_must_be_of_two_digits(tmp_path: Path, name: str) -> None:
    entries = vocabulary(WORDS)
    entries[3] = (name, 0.0, 6)
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.tokens"):
        make_tokenizer(tmp_path / "model.gguf", spm_metadata(entries))


def test_unmarked_end_of_turn_becomes_a_control_token(tmp_path: Path) -> None:
    entries = [
        *vocabulary(WORDS),
        ("<end_of_turn>", -1.0, NORMAL),
        ("<|im_end|>", 0.0, USER_DEFINED),
    ]
    tokenizer = make_tokenizer(tmp_path / "model.gguf", spm_metadata(entries))
    end = {len(entries) - 2, len(entries) - 1}
    assert tokenizer.eos_token_ids == end
    assert not end & set(tokenizer.encode("<end_of_turn><|im_end|>"))
    assert end <= set(tokenizer.encode("<end_of_turn><|im_end|>", parse_special=True))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.model", None, "missing"),
        ("tokenizer.ggml.tokens", None, "missing"),
        ("tokenizer.ggml.tokens", "text", "StringArray"),
        ("tokenizer.ggml.scores", None, "missing"),
        ("tokenizer.ggml.scores", [1.0], "one score for each token"),
        ("tokenizer.ggml.bos_token_id", 1_000_000, "outside the vocabulary"),
        ("tokenizer.ggml.add_bos_token", "yes", "of type bool"),
    ],
)
def test_damaged_metadata(tmp_path: Path, key: str, value: object, message: str) -> None:
    metadata = spm_metadata(vocabulary(WORDS))
    metadata[key] = value
    if value is None:
        del metadata[key]
    with pytest.raises(ModelFileError, match=message):
        make_tokenizer(tmp_path / "model.gguf", metadata)


def test_unknown_models_are_refused(tmp_path: Path) -> None:
    metadata = spm_metadata(vocabulary(WORDS))
    metadata["tokenizer.ggml.model"] = "bert"
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.model.*'bert'.*gpt2, llama"):
        make_tokenizer(tmp_path / "model.gguf", metadata)
