"""A load run on our own server: both ends see the same, and prompts are as long as planned."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from foreword.bench.load.report import LoadReport, LoadSettings, run_load_bench
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Chat, Mixed, Recipe


def load(server: Any, recipe: Recipe, *, endpoint: str = "chat", **settings: Any) -> LoadReport:
    target = Target(url=f"http://{server.host}:{server.port}", endpoint=endpoint)
    chosen = LoadSettings(calibrate=False, **settings)
    return asyncio.run(run_load_bench(target, recipe, chosen))


def metric(server: Any, name: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_both_ends_count_the_same(launch: Callable[..., Any]) -> None:
    server = launch(max_num_seqs=8, max_num_batched_tokens=128)
    recipe = Mixed(short_tokens=20, long_tokens=600, long_share=0.2, output_tokens=6)
    report = load(server, recipe, num_prompts=60, warmup=0, max_concurrency=6)
    summary = report.summary
    assert (summary.good, summary.errors) == (60, {})
    assert summary.server is not None
    assert (summary.server.requests, summary.server.count_mismatches) == (60, 0)
    # Before the run: a first request, and one for each member that was asked for.
    assert metric(server, "foreword:time_to_first_token_seconds_count") == 63
    assert metric(server, "foreword:generation_tokens_total") == summary.completion_tokens + 3 * 2
    assert {record.completion_tokens for record in report.result.records} == {6}


def test_both_ends_agree_on_ttft(launch: Callable[..., Any]) -> None:
    # One at a time: in this process, both ends would wait for each other's turn with Python.
    report = load(launch(), Mixed(long_tokens=600, output_tokens=2), num_prompts=30, warmup=2)
    remainders_ms = [1e3 * r.ttft_s - r.timing["ttft_ms"] for r in report.result.records]
    assert 0 < min(remainders_ms) < 5.0  # a busy machine stretches some, and not all
    server = report.summary.server
    assert server is not None
    assert server.remainder_ms.p50 == pytest.approx(statistics.median(remainders_ms))


def test_prompts_have_their_length_in_the_servers_tokens(launch: Callable[..., Any]) -> None:
    server = launch()
    recipe = Mixed(short_tokens=20, long_tokens=300)
    report = load(server, recipe, endpoint="completions", num_prompts=10, warmup=1)
    assert report.tokens_counted_by == "the server's /tokenize"
    assert report.target.token_ids
    assert len(report.result.records) == 10
    for record in report.result.records:
        assert record.prompt_tokens == record.planned_prompt_tokens
    chat = load(server, recipe, num_prompts=10, warmup=0)
    extra = {r.prompt_tokens - r.planned_prompt_tokens for r in chat.result.records}  # type: ignore[operator]
    assert len(extra) == 1  # the template's


def test_a_conversation_finds_its_history_in_the_cache(launch: Callable[..., Any]) -> None:
    recipe = Chat(sessions=2, turns=4, system_tokens=64, user_tokens=48, output_tokens=4)
    report = load(launch(), recipe, num_prompts=16, warmup=0)
    first = [r for r in report.result.records if r.kind == "turn 1"]
    later = [r for r in report.result.records if r.kind not in ("turn 1", "turn 2")]
    assert first
    assert later
    assert all((record.cached_tokens or 0) > 100 for record in later)
    assert (first[0].cached_tokens or 0) < 64


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_the_same_seed_asks_the_same(launch: Callable[..., Any], endpoint: str) -> None:
    reports = [
        load(launch(), Mixed(long_tokens=200), endpoint=endpoint, num_prompts=5, seed=3)
        for _ in range(2)
    ]
    assert reports[0].workload.requests == reports[1].workload.requests
