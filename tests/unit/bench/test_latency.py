from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from foreword.bench.latency import (
    LatencyReport,
    LatencySettings,
    measure,
    measure_cases,
    run_latency,
)
from foreword.bench.prompts import PromptSource, corpus_text
from foreword.bench.stats import Summary
from foreword.bench.table import latency_table
from foreword.core.params import SamplingParams
from foreword.engine.outputs import CompletionDelta, RequestDelta
from foreword.errors import ConfigError, ForewordError


class FakeLLM:
    """Streams tokens on a clock of its own: 1 ms per prompt token, then 10 ms per token.

    Its first request takes a second more, as a cold machine's would.
    """

    def __init__(self, *, first_tokens: int = 1, stop_after: int = 10**9, cached: int = 0) -> None:
        self.now_s = 0.0
        self.requests: list[tuple[list[int], SamplingParams]] = []
        self.first_tokens = first_tokens
        self.stop_after = stop_after
        self.cached = cached
        self.engine = SimpleNamespace(
            max_model_len=600, model_name="fake", backend=SimpleNamespace(describe=lambda: {"a": 1})
        )
        self.config = SimpleNamespace(choices=[SimpleNamespace(name="num_blocks", value=7)])
        self.tokenizer = SimpleNamespace(encode=lambda text, add_bos: [ord(c) for c in text[:5000]])

    def clock(self) -> float:
        return self.now_s

    def stream(
        self, prompt_token_ids: Sequence[int], sampling_params: SamplingParams | None = None
    ) -> Iterator[RequestDelta]:
        assert sampling_params is not None
        assert sampling_params.max_tokens is not None
        self.requests.append((list(prompt_token_ids), sampling_params))
        self.now_s += 1.0 if len(self.requests) == 1 else 0.0
        self.now_s += len(prompt_token_ids) * 1e-3
        left = min(sampling_params.max_tokens, self.stop_after)
        count = min(self.first_tokens, left)
        while left:
            completion = CompletionDelta(0, "x", (1,) * count)
            yield RequestDelta("r", (completion,), len(prompt_token_ids), self.cached)
            left -= count
            count = 1
            self.now_s += 10e-3


def cases_of(llm: FakeLLM, **settings: Any) -> Any:
    return measure_cases(
        llm, PromptSource(range(1000)), LatencySettings(**settings), clock=llm.clock
    )


def test_a_request_is_timed_to_its_first_token_and_from_there() -> None:
    llm = FakeLLM()
    measure(llm, [1], 1, clock=llm.clock)
    sample = measure(llm, [1] * 50, 5, clock=llm.clock)
    assert sample.ttft_s == pytest.approx(0.050)
    assert sample.prefill_tok_s == pytest.approx(1000)
    assert sample.decode_s == pytest.approx(0.040)
    assert sample.tpot_s == pytest.approx(0.010)
    _, params = llm.requests[-1]
    assert (params.temperature, params.max_tokens, params.ignore_eos) == (0.0, 5, True)


def test_tokens_that_come_with_the_first_are_not_decoding() -> None:
    llm = FakeLLM(first_tokens=3)
    assert measure(llm, [1], 5, clock=llm.clock).tpot_s == pytest.approx(0.010)
    assert measure(llm, [1], 3, clock=llm.clock).tpot_s is None


def test_a_short_answer_is_an_error_not_a_fast_one() -> None:
    with pytest.raises(ForewordError, match="3 tokens of 5"):
        measure(FakeLLM(stop_after=3), [1], 5)


def test_rounds_go_over_all_cases_and_the_warmup_is_thrown_away() -> None:
    llm = FakeLLM()
    cases = cases_of(llm, prompt_lengths=(10, 20), output_lengths=(1, 2), repeats=3, warmup=1)
    shapes = [(len(prompt), params.max_tokens) for prompt, params in llm.requests]
    assert shapes == [(10, 1), (10, 2), (20, 1), (20, 2)] * 4
    assert [len(case.samples) for case in cases] == [3, 3, 3, 3]
    assert cases[0].ttft_ms == Summary(*[pytest.approx(10.0)] * 3)  # without the slow first request
    assert cases[3].decode_tok_s.median == pytest.approx(100)
    assert cases[0].tpot_ms is cases[0].decode_tok_s is None


def test_no_two_prompts_begin_alike() -> None:
    llm = FakeLLM()
    cases_of(llm, prompt_lengths=(300, 450), repeats=20)
    first_tokens = [prompt[0] for prompt, _ in llm.requests]  # the text's tokens are all different
    assert len(set(first_tokens)) == len(first_tokens) == 42


def test_progress_counts_every_request() -> None:
    llm, seen = FakeLLM(), []
    settings = LatencySettings(prompt_lengths=(1, 2), output_lengths=(1,), repeats=2)
    measure_cases(
        llm, PromptSource(range(99)), settings, progress=lambda *counts: seen.append(counts)
    )
    assert seen == [(i, 6) for i in range(1, 7)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("prompt_lengths", ()),
        ("prompt_lengths", (5, 0)),
        ("output_lengths", ()),
        ("output_lengths", (-1,)),
        ("repeats", 0),
        ("warmup", -1),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(option: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        LatencySettings(**{option: value})  # type: ignore[arg-type]
    assert caught.value.option == option


def report(llm: Any, **settings: Any) -> LatencyReport:
    return run_latency(llm, LatencySettings(**settings))


def test_a_case_beyond_the_context_is_refused_before_anything_runs() -> None:
    llm = FakeLLM()
    with pytest.raises(ConfigError, match="500 and 101 of output exceed the context of 600"):
        report(llm, prompt_lengths=(10, 500), output_lengths=(101,))
    assert not llm.requests


def test_the_report_is_json_and_says_what_was_measured_on_what() -> None:
    made = report(FakeLLM(), prompt_lengths=(10, 20), output_lengths=(1, 4), repeats=2)
    data = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert data["schema"] == "foreword.bench.latency/1"
    assert data["machine"]["cores"] >= 1
    assert data["engine"] == {
        "model": "fake",
        "settings": {"num_blocks": 7},
        "backend": {"a": 1},
    }
    assert data["settings"]["prompt_lengths"] == [10, 20]
    first, *_, last = data["cases"]
    assert (first["prompt_tokens"], first["output_tokens"], first["tpot_ms"]) == (10, 1, None)
    assert (last["prompt_tokens"], last["output_tokens"]) == (20, 4)
    assert set(last["tpot_ms"]) == {"median", "low", "high"}
    assert [s["output_tokens"] for s in last["samples"]] == [4, 4]


@pytest.mark.parametrize("cached", [0, 8])
def test_the_table_has_a_row_for_each_case_and_owns_up_to_cache_hits(cached: int) -> None:
    settings: dict[str, Any] = {"prompt_lengths": (17, 29), "output_lengths": (1, 4), "repeats": 1}
    llm = FakeLLM(cached=cached)
    made = replace(report(llm, **settings), cases=cases_of(llm, **settings))
    console = Console(width=80)
    with console.capture() as captured:
        console.print(latency_table(made))
    rows = [line.split() for line in captured.get().splitlines() if line.startswith("│")]
    cells = [[cell for cell in row if cell != "│"] for row in rows]
    assert cells == [
        ["17", "1", "17.0", "17.0–17.0", "–", "1,000", "–"],
        ["17", "4", "17.0", "17.0–17.0", "10.00", "1,000", "100.0"],
        ["29", "1", "29.0", "29.0–29.0", "–", "1,000", "–"],
        ["29", "4", "29.0", "29.0–29.0", "10.00", "1,000", "100.0"],
    ]
    assert ("8 prompt tokens came from the prefix cache" in captured.get()) == bool(cached)


class TestPromptSource:
    def test_slices_follow_each_other_and_go_round(self) -> None:
        source = PromptSource([10, 11, 12, 13, 14])
        assert source.take(3) == [10, 11, 12]
        assert source.take(3) == [13, 14, 10]
        assert source.take(7) == [11, 12, 13, 14, 10, 11, 12]

    def test_a_beginning_is_never_used_twice(self) -> None:
        source = PromptSource(range(5))
        assert sorted(source.take(5)[0] for _ in range(5)) == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match="no more"):
            source.take(1)

    def test_needs_a_text(self) -> None:
        with pytest.raises(ValueError, match="needs tokens"):
            PromptSource([])

    def test_the_corpus_is_long(self) -> None:
        assert len(corpus_text()) > 400_000


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], (3, 3, 3)), ([5.0, 1.0, 2.0], (2, 1, 5)), ([4.0, 1.0, 2.0, 9.0], (3, 1, 9))],
)
def test_summary(values: list[float], expected: tuple[float, float, float]) -> None:
    summary = Summary.of(values)
    assert (summary.median, summary.low, summary.high) == expected
