"""Tokens become text that is certain: whole characters, no part of a stop string."""

from __future__ import annotations

import pytest
from support.scripted import EOS, ByteTokenizer

from foreword.core.params import SamplingParams
from foreword.core.request import FinishReason
from foreword.core.step import TokenLogprob
from foreword.engine.completion import CompletionStream
from foreword.engine.outputs import CompletionDelta


def stream(**params: object) -> CompletionStream:
    return CompletionStream(0, SamplingParams(**params), ByteTokenizer())  # type: ignore[arg-type]


def feed(
    completion: CompletionStream, data: bytes, chunk: int, end: FinishReason = FinishReason.LENGTH
) -> list[CompletionDelta]:
    """Push ``data`` in chunks, as steps bring it, until it is through or the completion ends."""
    deltas = []
    for start in range(0, len(data), chunk):
        part = tuple(data[start : start + chunk])
        last = start + chunk >= len(data)
        delta = completion.push(part, (), end if last else None)
        if delta is not None:
            deltas.append(delta)
        if completion.finished:
            break
    return deltas


CHUNKS = [1, 2, 3, 7, 100]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_character_spread_over_tokens_arrives_whole(chunk: int) -> None:
    text = "naïve 🙂 人 e\u0301"
    deltas = feed(stream(), text.encode(), chunk)
    assert "".join(delta.text for delta in deltas) == text
    assert all("\ufffd" not in delta.text for delta in deltas)
    assert [i for delta in deltas for i in delta.token_ids] == list(text.encode())
    assert all(delta.text for delta in deltas[:-1])


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_stop_string_never_leaks(chunk: int) -> None:
    deltas = feed(stream(stop="END"), b"so be it EN, then END and more", chunk)
    assert "".join(delta.text for delta in deltas) == "so be it EN, then "
    assert deltas[-1].finish_reason is FinishReason.STOP
    assert deltas[-1].stop_reason == "END"


def test_what_came_with_a_stop_string_and_after_it_is_not_reported() -> None:
    completion, scores = stream(stop="b"), [TokenLogprob(token, -1.0, 1) for token in b"abcd"]
    delta = completion.push(tuple(b"abcd"), tuple(scores), None)
    assert delta is not None
    assert (delta.text, delta.token_ids) == ("a", tuple(b"ab"))
    assert list(delta.logprobs) == scores[:2]


@pytest.mark.parametrize("chunk", CHUNKS)
def test_withheld_text_comes_out_at_the_end(chunk: int) -> None:
    deltas = feed(stream(stop="END"), b"so be it EN", chunk)
    assert "".join(delta.text for delta in deltas) == "so be it EN"
    assert deltas[-1].finish_reason is FinishReason.LENGTH


def test_a_stop_string_that_never_comes_delays_nothing() -> None:
    deltas = feed(stream(stop=["x" * 100]), b"hello", 1)
    assert [delta.text for delta in deltas] == ["h", "e", "l", "l", "o"]


def test_the_tail_of_a_character_is_shown_as_one_replacement() -> None:
    deltas = feed(stream(), "a🙂".encode()[:3], 1)
    assert "".join(delta.text for delta in deltas) == "a\ufffd"


def test_stop_strings_count_only_after_min_tokens() -> None:
    deltas = feed(stream(stop="b", min_tokens=3, max_tokens=9), b"ababab", 1)
    assert "".join(delta.text for delta in deltas) == "aba"


@pytest.mark.parametrize(
    ("params", "token", "reason"), [({}, EOS, None), ({"stop_token_ids": [66]}, 66, 66)]
)
def test_a_stop_token_ends_the_text_and_is_not_in_it(
    params: dict[str, object], token: int, reason: int | None
) -> None:
    completion = stream(**params)
    assert completion.push((65,), (), None) is not None
    delta = completion.push((token,), (), FinishReason.STOP)
    assert delta is not None
    assert (delta.text, delta.token_ids, delta.stop_reason) == ("", (token,), reason)
