"""Answers in the terminal."""

from __future__ import annotations

import pytest
from support.scripted import tiny_engine

from foreword import LLM, SamplingParams
from foreword.cli.answer import stream_answer


def test_the_rate_counts_tokens_after_the_first_text(capsys: pytest.CaptureFixture[str]) -> None:
    llm = LLM.from_engine(tiny_engine())  # a token is a byte, so this character has four
    answer = stream_answer(llm, lambda: list("say:😀ab".encode()), SamplingParams())
    assert capsys.readouterr().out == "😀ab\n"
    assert (answer.num_tokens, answer.num_first_tokens) == (7, 4)
    rate = 3 / answer.decode_s
    assert str(answer) == f"TTFT {answer.ttft_s * 1000:.1f} ms · 7 tokens · {rate:.1f} tok/s"


def test_no_rate_where_all_came_at_once() -> None:
    llm = LLM.from_engine(tiny_engine())
    answer = stream_answer(llm, lambda: list("say:😀".encode()), SamplingParams(max_tokens=4))
    assert str(answer) == f"TTFT {answer.ttft_s * 1000:.1f} ms · 4 tokens"
