"""Log-probabilities in the shapes of OpenAI's two endpoints, and in vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foreword.core.step import TokenLogprob
from foreword.text.tokenizer import Tokenizer

_FLOOR = -9999.0  # what OpenAI sends for minus infinity, which JSON does not have


def chat_logprobs(tokenizer: Tokenizer, entries: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Return a chat choice's ``logprobs``."""
    content = [
        {
            **_chat_token(tokenizer, entry.token_id, entry.logprob),
            "top_logprobs": [_chat_token(tokenizer, *alternative) for alternative in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def _chat_token(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token_id)
    return {"token": _name(raw), "logprob": max(logprob, _FLOOR), "bytes": list(raw)}


def completion_logprobs(
    tokenizer: Tokenizer, entries: Iterable[tuple[int, TokenLogprob | None]], offset: int
) -> dict[str, Any]:
    """Return a text choice's ``logprobs``.

    Args:
        entries: token ids with what is known of them; nothing predicts a prompt's first token,
            so that one has None and is listed with null.
        offset: characters of the choice's text that come before the first of them.
    """
    tokens: list[str] = []
    logprobs: list[float | None] = []
    top: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for token_id, entry in entries:
        raw = tokenizer.token_bytes(token_id)
        tokens.append(_name(raw))
        logprobs.append(None if entry is None else max(entry.logprob, _FLOOR))
        top.append(None if entry is None else _alternatives(tokenizer, entry))
        offsets.append(offset)
        offset += len(raw.decode(errors="ignore"))
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": top,
        "text_offset": offsets,
    }


def prompt_logprobs(
    tokenizer: Tokenizer, entries: Iterable[TokenLogprob]
) -> list[dict[str, Any] | None]:
    """Return vLLM's ``prompt_logprobs``: null for the first token, then a map by token id."""
    return [None, *(_by_id(tokenizer, entry) for entry in entries)]


def _by_id(tokenizer: Tokenizer, entry: TokenLogprob) -> dict[str, Any]:
    ranked = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(entry.top, 1)]
    return {
        str(token_id): {
            "logprob": max(logprob, _FLOOR),
            "rank": rank,
            "decoded_token": _name(tokenizer.token_bytes(token_id)),
        }
        for token_id, logprob, rank in (*ranked, (entry.token_id, entry.logprob, entry.rank))
    }


def _alternatives(tokenizer: Tokenizer, entry: TokenLogprob) -> dict[str, float]:
    pairs = (*entry.top, (entry.token_id, entry.logprob))
    return {_name(tokenizer.token_bytes(token)): max(value, _FLOOR) for token, value in pairs}


def _name(raw: bytes) -> str:
    """Return a token's text, or as OpenAI does ``bytes:\\xf0\\x9f`` for a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
