"""What a load run has to know of its server before it begins."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from foreword.bench.load.corpus import Corpus, text
from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.record import RequestRecord
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target
from foreword.errors import ForewordError

_TIMEOUT_S = 60.0
_PROBE_WORDS = (50, 250)
_HELLO = Passage("Hello!", 2)
# How byte-level and SentencePiece vocabularies write white space.
_SPELLINGS = str.maketrans({"Ġ": " ", "Ċ": "\n", "▁": " "})


class LoadError(ForewordError):
    """The server cannot be put under load; says what it did."""


async def prepare(target: Target, ask_for: Iterable[str] = ()) -> tuple[Target, Corpus]:
    """`prepare_target` and `prepare_corpus`; completions get token ids where the server takes them.

    Raises:
        LoadError: the server cannot be put under load.
    """
    target = await prepare_target(target, ask_for)
    corpus = await prepare_corpus(target)
    if target.endpoint == "completions" and corpus.token_ids is not None:
        taken = await takes_token_ids(target, corpus.token_ids[:16])
        target = replace(target, token_ids=taken)
    return target, corpus


async def prepare_target(target: Target, ask_for: Iterable[str] = ()) -> Target:
    """Name the model where that was left open, and see that requests are answered.

    Args:
        ask_for: members to set to true in each body if the server knows them: ``ignore_eos``, and
            ``timing``, foreword's own account of a request.

    Raises:
        LoadError: no server, no model, or a first request fails.
    """
    if target.model is None:
        target = replace(target, model=await _first_model(target))
    record = await _answer(target, _HELLO)
    if record.failure is not None:
        raise LoadError(
            f"{target.url} fails a first request: {record.failure.kind.value}, "
            f"{record.failure.detail}"
        )
    for name in ask_for:
        asking = replace(target, extra={**target.extra, name: True})
        record = await _answer(asking, _HELLO)
        if record.ok and (name != "timing" or record.timing is not None):
            target = asking
    return target


async def _first_model(target: Target) -> str:
    answer = await asyncio.to_thread(_ask, target, "GET", "/v1/models", None)
    try:
        return str(answer["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise LoadError(f"{target.url} lists no model: name one") from None


async def prepare_corpus(target: Target) -> Corpus:
    """Make a corpus whose passages have the wanted numbers of the server's tokens.

    By the server's ``/tokenize`` where it has one (vLLM's and ours, or llama.cpp's), else from the
    usage of two short requests, else by guess; `Corpus.counted_by` says which.
    """
    words = text()
    for body in (
        {"prompt": words, "return_token_strs": True, "add_special_tokens": False},
        {"content": words, "with_pieces": True},
    ):
        try:
            answer = await asyncio.to_thread(_ask, target, "POST", "/tokenize", body)
            units, ids = _tokens(answer)
        except (LoadError, KeyError, TypeError):
            continue
        if "".join(units) == words:
            return Corpus(units, token_ids=ids, counted_by="the server's /tokenize")
    return Corpus.of_words(await _tokens_per_word(target))


async def takes_token_ids(target: Target, token_ids: Sequence[int]) -> bool:
    """Whether the server's completions take a prompt as token ids, and take all of them."""
    asking = replace(target, endpoint="completions", token_ids=True)
    record = await _answer(asking, Passage("", len(token_ids), tuple(token_ids)))
    extra = (record.prompt_tokens or 0) - len(token_ids)
    return record.ok and 0 <= extra <= 1  # one: a beginning-of-sequence token


async def _tokens_per_word(target: Target) -> float | None:
    """Ask twice, so that what the chat template adds cancels out."""
    guess = Corpus.of_words(1.0)
    fewer, more = [(await _answer(target, guess.passage(0, n))).prompt_tokens for n in _PROBE_WORDS]
    if fewer is None or more is None or more <= fewer:
        return None
    return (more - fewer) / (_PROBE_WORDS[1] - _PROBE_WORDS[0])


async def _answer(target: Target, prompt: Passage) -> RequestRecord:
    """Send one request for two tokens, since a first one may be none of text."""
    messages = (Message("user", prompt),)
    request = PlannedRequest(index=0, kind="probe", messages=messages, max_tokens=2)
    (record,) = (await run_load(target, [request], timeout_s=_TIMEOUT_S)).records
    return record


def _tokens(answer: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Text and id of each token, from vLLM's answer or llama.cpp's."""
    if "token_strs" in answer:
        return [piece.translate(_SPELLINGS) for piece in answer["token_strs"]], answer["tokens"]
    tokens = answer["tokens"]
    return [token["piece"] for token in tokens], [token["id"] for token in tokens]


def _ask(target: Target, method: str, path: str, body: Any) -> Any:
    kind = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
    connection = kind(target.host, target.port, timeout=_TIMEOUT_S)
    headers = {**target.headers(), "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body)
    try:
        connection.request(method, target.path(path), data, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != http.client.OK:
            raise LoadError(f"{target.url} answered {response.status} to {path}")
        return json.loads(answer)
    except (OSError, ssl.SSLError, http.client.HTTPException) as error:
        raise LoadError(f"no server answers at {target.url}: {error}") from error
    except ValueError as error:
        raise LoadError(f"{target.url} answered no JSON to {path}") from error
    finally:
        connection.close()
