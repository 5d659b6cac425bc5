"""Byte-level BPE on small vocabularies."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.vocabularies import bpe_metadata, make_tokenizer

from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.text.tokenizer import Tokenizer

MERGES = [
    ("l", "o"), ("lo", "w"), ("e", "r"), (" ", "low"), ("1", "2"), ("12", "3"), (".", "\n"),
    ("\n", "\n"),
]  # fmt: skip


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, add_bos=False)]


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Tokenizer:
    return make_tokenizer(tmp_path / "model.gguf", bpe_metadata(request.param, MERGES))


@pytest.mark.parametrize(
    ("made", "text", "expected"),
    [
        ("gpt-2", "lower low", ["low", "er", " low"]),
        ("gpt-2", "123 é", ["123", " ", "\ufffd", "\ufffd"]),
        ("smollm", "123", ["1", "2", "3"]),
        ("llama-bpe", "1231", ["123", "1"]),
        ("qwen2", "12", ["1", "2"]),
        ("llama-bpe", "w.\n\n", ["w", ".\n", "\n"]),
        ("gpt-2", "w.\n\n", ["w", ".", "\n\n"]),
        ("default", "low.123", ["low", ".", "123"]),
    ],
    indirect=["made"],
)
def test_ids(made: Tokenizer, text: str, expected: list[str]) -> None:
    assert texts(made, text) == expected


def test_equal_ranks_merge_from_the_left(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path / "model.gguf", bpe_metadata("gpt-2", [("a", "a")]))
    assert texts(tokenizer, "aaaaa") == ["aa", "aa", "a"]


def test_whole_words_come_before_merges(tmp_path: Path) -> None:
    """Llama 3's tokenizer takes a word that is a token, whatever the merges would make of it."""
    merges = [("b", "c"), ("a", "b"), ("ab", "c")]
    for pre, expected in [("llama-bpe", ["abc"]), ("qwen2", ["a", "bc"])]:
        tokenizer = make_tokenizer(tmp_path / f"{pre}.gguf", bpe_metadata(pre, merges))
        assert texts(tokenizer, "abc") == expected


def test_unknown_splitting_rules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre.*'tekken'.*smollm"):
        make_tokenizer(tmp_path / "model.gguf", bpe_metadata("tekken", []))


@pytest.mark.parametrize("line", ["a", "a zzz", "zz zz", ""])
def test_merges_must_be_of_tokens(tmp_path: Path, line: str) -> None:
    metadata = bpe_metadata("gpt-2", [("a", "b")])
    metadata["tokenizer.ggml.merges"] = ["a b", line]
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.merges.*merge 1"):
        make_tokenizer(tmp_path / "model.gguf", metadata)


def test_control_tokens_by_default_and_bos(tmp_path: Path) -> None:
    """llama-bpe puts BOS first unless the file says otherwise; gpt-2 does not."""
    control = ["<|begin|>", "<|eot_id|>"]
    for pre, add_bos in [("llama-bpe", True), ("gpt-2", False)]:
        metadata = bpe_metadata(pre, [], control, **{"tokenizer.ggml.bos_token_id": 256})
        tokenizer = make_tokenizer(tmp_path / f"{pre}.gguf", metadata)
        assert tokenizer.add_bos is add_bos
        assert tokenizer.eos_token_ids == {257}
        assert tokenizer.encode("") == ([256] if add_bos else [])
        assert 257 not in tokenizer.encode("<|eot_id|>")
        assert tokenizer.encode("<|eot_id|>", parse_special=True)[-1] == 257
