"""Golden streams: what counts as a token, and when it was there."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreword.bench.load.reading import StreamReading
from foreword.bench.load.record import ErrorKind

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
EMPTY = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}


def content(text: str, **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **members}


def event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def read(*arrivals: tuple[float, bytes]) -> StreamReading:
    reading = StreamReading()
    for time_s, data in arrivals:
        reading.feed(time_s, data)
    reading.end(99.0)
    return reading


def test_neither_a_role_nor_an_empty_text_is_content() -> None:
    reading = read(
        (1.0, event(ROLE)),
        (2.0, event(EMPTY)),
        (3.0, b": a comment\n\n"),
        (4.0, event(content("Hel"))),
        (5.0, event(content("lo"))),
        (6.0, event(LAST) + b"data: [DONE]\n\n"),
    )
    assert reading.times_s == [4.0, 5.0]
    assert (reading.finish_reason, reading.done, reading.failure) == ("length", True, None)


def test_an_event_is_there_when_its_last_byte_is() -> None:
    first, second = event(content("a")), event(content("b"))
    reading = read((1.0, first[:20]), (2.0, first[20:] + second[:5]), (3.0, second[5:]))
    assert reading.times_s == [2.0, 3.0]


def test_pieces_of_one_read_share_its_time() -> None:
    assert read((1.0, event(content("a")) * 3)).times_s == [1.0, 1.0, 1.0]


def test_what_a_reasoning_model_thinks_is_content() -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "Hm"}}]}
    assert read((1.0, event(ROLE)), (2.0, event(thought))).times_s == [2.0]


def test_completions_carry_text() -> None:
    assert read(
        (1.0, event({"choices": [{"text": ""}]})), (2.0, event({"choices": [{"text": "a"}]}))
    ).times_s == [2.0]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\n"])
def test_lines_may_end_as_they_like_and_the_last_may_lack_its_empty_line(end: bytes) -> None:
    reading = read((1.0, b"data:" + json.dumps(content("a")).encode() + end))
    assert len(reading.times_s) == 1
    assert reading.failure is None


@given(cuts=st.lists(st.integers(1, 400), max_size=20))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    whole = (event(ROLE) + event(content("ä")) + event(content("b")) + event(LAST)).replace(
        b"\n", b"\r\n"
    )
    bounds = [0, *sorted(cut for cut in set(cuts) if cut < len(whole)), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    reading = read(*((float(i), piece) for i, piece in enumerate(pieces)))
    assert len(reading.times_s) == 2
    assert (reading.finish_reason, reading.failure) == ("length", None)


def test_counts_come_from_usage() -> None:
    details = {"cached_tokens": 16}
    usage = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": details}
    reading = read((1.0, event(content("abc"))), (2.0, event({"choices": [], "usage": usage})))
    assert (reading.prompt_tokens, reading.cached_tokens, reading.completion_tokens) == (40, 16, 7)
    assert reading.token_counts is None  # of the piece itself nothing is known


@pytest.mark.parametrize("name", ["vLLM", "llama.cpp"])
def test_tokens_of_each_piece_are_known_where_the_server_counts_along(name: str) -> None:
    def so_far(count: int) -> dict[str, Any]:
        if name == "vLLM":
            return {"usage": {"completion_tokens": count}}
        return {"timings": {"predicted_n": count}}

    reading = read(
        (1.0, event(content("a", **so_far(1)))),
        (2.0, event(content("bcd", **so_far(4)))),
        (3.0, event(content("ef", **so_far(6)))),
    )
    assert reading.token_counts == (1, 3, 2)


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"data: <html>\n\n", ErrorKind.BAD_BODY, "no chunk"),
        (b"data: [1]\n\n", ErrorKind.BAD_BODY, "not an object"),
        (b'data: {"choices": 5}\n\n', ErrorKind.BAD_BODY, "no chunk"),
        (b'data: {"usage": [1], "choices": []}\n\n', ErrorKind.BAD_BODY, "no chunk"),
        (b'data: {"choices":[{"text":"\xff"}]}\n\n', ErrorKind.BAD_BODY, "not UTF-8"),
        (b'data: {"error": {"message": "broken"}}\n\n', ErrorKind.SERVER_ERROR, "broken"),
        (b'data: {"error": "broken"}\n\n', ErrorKind.SERVER_ERROR, "broken"),
    ],
)
def test_what_is_no_chunk_is_told(data: bytes, kind: ErrorKind, words: str) -> None:
    reading = read((1.0, event(content("a"))), (2.0, data), (3.0, event(content("b"))))
    assert reading.failure is not None
    assert reading.failure.kind is kind
    assert words in reading.failure.detail
    assert reading.times_s == [1.0]


def test_nothing_counts_after_the_end() -> None:
    assert read((1.0, b"data: [DONE]\n\n" + event(content("a")))).times_s == []
