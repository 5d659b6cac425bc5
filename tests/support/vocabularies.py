"""Tiny vocabularies as GGUF files, for tokenizers that no model at hand has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.gguf_writer import I32, STRING, Typed, gguf_bytes

from foreword.text.tokenizer import Tokenizer
from foreword.weights.gguf import GGUFFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_SPELLING = [
    chr(byte) if byte in _PRINTABLE else chr(256 + _OTHERS.index(byte)) for byte in range(256)
]


def spelled(text: str) -> str:
    """A text as byte-level BPE spells it."""
    return "".join(BYTE_SPELLING[byte] for byte in text.encode())


def write_gguf(path: Path, metadata: dict[str, object]) -> GGUFFile:
    path.write_bytes(gguf_bytes(metadata, {}))
    return GGUFFile.open(path)


def bpe_metadata(
    pre: str, merges: Sequence[tuple[str, str]], control: Sequence[str] = (), **more: object
) -> dict[str, object]:
    """All bytes, then what the merges (of plain text) make, then control tokens."""
    made = [left + right for left, right in merges]
    tokens = [*BYTE_SPELLING, *map(spelled, made), *control]
    types = [NORMAL] * (256 + len(made)) + [CONTROL] * len(control)
    lines = [f"{spelled(left)} {spelled(right)}" for left, right in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": Typed(I32, types),
        "tokenizer.ggml.merges": Typed(STRING, lines),
        **more,
    }


def spm_metadata(tokens: Sequence[tuple[str, float, int]], **more: object) -> dict[str, object]:
    """Tokens with score and type, in the order of their ids."""
    texts, scores, types = zip(*tokens, strict=True)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(texts),
        "tokenizer.ggml.scores": [float(score) for score in scores],
        "tokenizer.ggml.token_type": Typed(I32, list(types)),
        **more,
    }


def bytes_tokens() -> list[tuple[str, float, int]]:
    """The 256 byte tokens of a SentencePiece vocabulary."""
    return [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]


def make_tokenizer(path: Path, metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.load(write_gguf(path, metadata))
