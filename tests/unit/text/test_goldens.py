"""Ids equal llama.cpp's (tools/make_tokenizer_goldens.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foreword.text.tokenizer import Tokenizer

GOLDENS = Path(__file__).parents[2] / "data" / "tokenizer" / "goldens.json"

# What they cannot write: SmolLM2's vocabulary lacks some bytes, Gemma's takes U+2581 for a space.
LOST: dict[str, dict[int, str]] = {
    "smollm2:135m": dict.fromkeys(b"\x04\x06\x13\x14\x16\x1d", ""),
    "gemma3:270m": {0x2581: " "},
}


@pytest.fixture(scope="module")
def goldens() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(GOLDENS.read_text())
    assert len(data["texts"]) >= 300
    return data


@pytest.fixture(params=["smollm2:135m", "gemma3:270m"])
def model(request: pytest.FixtureRequest) -> tuple[str, Tokenizer]:
    fixture = {"smollm2:135m": "smollm2", "gemma3:270m": "gemma"}[request.param]
    return request.param, request.getfixturevalue(fixture)


def test_ids_of_plain_text(model: tuple[str, Tokenizer], goldens: dict[str, Any]) -> None:
    name, tokenizer = model
    for text, ids in zip(goldens["texts"], goldens[name]["ids"], strict=True):
        assert tokenizer.encode(text, add_bos=False) == ids, repr(text[:80])


def test_ids_with_control_tokens(model: tuple[str, Tokenizer], goldens: dict[str, Any]) -> None:
    name, tokenizer = model
    for text, ids in zip(goldens["special_texts"], goldens[name]["special_ids"], strict=True):
        assert tokenizer.encode(text, add_bos=False, parse_special=True) == ids, repr(text)


def test_decoding_gives_the_text_back(
    model: tuple[str, Tokenizer], goldens: dict[str, Any]
) -> None:
    name, tokenizer = model
    for text, ids in zip(goldens["texts"], goldens[name]["ids"], strict=True):
        assert tokenizer.decode(ids) == text.translate(LOST[name])
