"""What is found out about servers that can less than ours; tests/server has ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.raw_server import DONE, HEAD, Step, chunk, raw_server

from foreword.bench.load.corpus import text
from foreword.bench.load.mock import MockRequest, MockServer, Script
from foreword.bench.load.prepare import LoadError, prepare_corpus, prepare_target
from foreword.bench.load.target import Target

ANSWER: list[Step] = [HEAD, chunk("a"), DONE]


def whole(body: Any, status: str = "200 OK") -> list[Step]:
    data = json.dumps(body).encode()
    return [b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(data), data)]


MISSING = whole({}, "404 Not Found")


@contextmanager
def target(*answers: list[Step], **options: Any) -> Iterator[Target]:
    with raw_server(*answers) as url:
        yield Target(url=url, **options)


def test_the_first_model_of_the_list_is_asked_for() -> None:
    with target(whole({"data": [{"id": "one"}, {"id": "two"}]}), ANSWER) as server:
        assert asyncio.run(prepare_target(server)).model == "one"


def test_members_that_a_server_refuses_are_left_out() -> None:
    refused = whole({"error": {"message": "unknown: timing"}}, "400 Bad Request")
    with target(ANSWER, ANSWER, refused, model="m") as server:
        prepared = asyncio.run(prepare_target(server, ("ignore_eos", "timing")))
    assert prepared.extra == {"ignore_eos": True}


def test_a_timing_that_does_not_come_is_left_out() -> None:
    with target(ANSWER, model="m") as server:
        assert asyncio.run(prepare_target(server, ("timing",))).extra == {}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole({"error": "key"}, "401 Unauthorized"), "401"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<h1>"], "no JSON"),
        (whole({"data": []}), "no model"),
        (whole([1]), "no model"),
        ([b"SSH-2.0\r\n"], "no server answers"),
    ],
)
def test_what_is_no_server_is_told(answer: list[Step], words: str) -> None:
    with target(answer) as server, pytest.raises(LoadError, match=words):
        asyncio.run(prepare_target(server))


def test_a_server_that_fails_the_first_request() -> None:
    page: list[Step] = [b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<h1>"]
    with target(page, model="m") as server, pytest.raises(LoadError, match="text/html"):
        asyncio.run(prepare_target(server))


def words_and_ids() -> tuple[list[str], list[int]]:
    """The corpus in pieces of five characters."""
    whole_text = text()
    pieces = [whole_text[i : i + 5] for i in range(0, len(whole_text), 5)]
    return pieces, list(range(len(pieces)))


def test_tokens_of_llama_cpp() -> None:
    pieces, ids = words_and_ids()
    tokens = [{"id": i, "piece": piece} for i, piece in zip(ids, pieces, strict=True)]
    with target(whole({}, "400 Bad Request"), whole({"tokens": tokens}), model="m") as server:
        corpus = asyncio.run(prepare_corpus(server))
    assert corpus.counted_by == "the server's /tokenize"
    start = corpus.starts[7]
    passage = corpus.passage(start, 3)
    assert passage.text == "".join(pieces[start : start + 3])
    assert passage.token_ids == (start, start + 1, start + 2)


def test_tokens_as_byte_level_vocabularies_spell_them() -> None:
    pieces, ids = words_and_ids()
    spelled = [piece.replace(" ", "Ġ").replace("\n", "Ċ") for piece in pieces]
    with target(whole({"tokens": ids, "token_strs": spelled}), model="m") as server:
        corpus = asyncio.run(prepare_corpus(server))
    assert corpus.counted_by == "the server's /tokenize"


def test_without_tokenize_two_requests_tell_tokens_per_word() -> None:
    async def run() -> tuple[str, str]:
        # The mock has no /tokenize, and a token for each word.
        async with MockServer(lambda request: Script(0.0)) as server:
            corpus = await prepare_corpus(Target(url=server.url, model="m"))
            return corpus.counted_by, corpus.passage(0, 100).text

    counted_by, passage = asyncio.run(run())
    assert counted_by == "usage of two requests"
    assert len(passage.split()) == 100


def test_without_any_count_lengths_are_a_guess() -> None:
    with target(MISSING, MISSING, ANSWER, model="m") as server:
        corpus = asyncio.run(prepare_corpus(server))
    assert corpus.counted_by == "estimate"
    assert 60 < len(corpus.passage(0, 100).text.split()) < 80


def test_a_tokenizer_that_rewrites_its_text_is_not_trusted() -> None:
    with target(whole({"tokens": [1], "token_strs": ["other"]}), MISSING, ANSWER, model="m") as s:
        assert asyncio.run(prepare_corpus(s)).counted_by == "estimate"


def test_a_server_that_takes_anything_is_asked_once_for_each_member() -> None:
    seen: list[MockRequest] = []

    def behave(request: MockRequest) -> Script:
        seen.append(request)
        return Script(0.0)

    async def run() -> None:
        async with MockServer(behave) as server:
            await prepare_target(Target(url=server.url), ("ignore_eos",))

    asyncio.run(run())
    assert [request.number for request in seen] == [0, 1]
    assert "ignore_eos" not in seen[0].body
    assert seen[1].body["ignore_eos"] is True
