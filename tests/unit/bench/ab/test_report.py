"""What a report says, to programs and to people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.noise import NoisyMachine, VirtualRun

from foreword.bench.ab.blocks import Block, BlockPair, Side
from foreword.bench.ab.evidence import differing, gather
from foreword.bench.ab.quality import Quality
from foreword.bench.ab.report import AbReport
from foreword.bench.ab.run import Measured
from foreword.bench.ab.settings import AbSettings
from foreword.bench.ab.table import ab_tables
from foreword.bench.divergence import Divergence
from foreword.bench.load.record import ErrorKind, Failure, RequestRecord

SETTINGS = AbSettings(pairs=12, requests=10)
SIDES: Mapping[Side, str] = {"a": "--enable-prefix-caching", "b": "--no-enable-prefix-caching"}


def record(
    index: int = 0, *, cached: int = 0, chunks: int = 1, isa: str = "avx2", **more: Any
) -> RequestRecord:
    timing = {"active": {"isa": isa, "cached_tokens": {"pool": cached}, "chunks": chunks}}
    return RequestRecord(
        index=index, kind="test", intended_s=0.0, sent_s=0.0, ended_s=1.0, prompt_tokens=100,
        cached_tokens=cached, completion_tokens=8, timing=timing, **more,
    )  # fmt: skip


def measured(slower: float = 0.3, *, cached_b: int = 0) -> Measured:
    machine = NoisyMachine(1)
    return Measured(
        aa_pairs=list(VirtualRun(pairs=8, requests=10).measure(machine, 1)),
        pairs=list(VirtualRun(pairs=12, requests=10, slower=slower).measure(machine, 2)),
        records={"a": [record(cached=64)] * 4, "b": [record(cached=cached_b)] * 4},
        idle_cpu={"a": [0.0, 0.001], "b": [0.0]},
    )


def report_of(found: Measured, **more: Any) -> AbReport:
    return AbReport.make(
        found, SETTINGS, sides=more.pop("sides", SIDES), workload={"name": "rag"}, **more
    )


def shown(report: AbReport) -> str:
    console = Console(width=120, record=True, file=None, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(*ab_tables(report), sep="\n")
    return capture.get()


def test_a_report_is_plain_data_with_all_that_was_measured() -> None:
    data = json.loads(json.dumps(report_of(measured()).to_json(), allow_nan=False))
    assert (data["schema"], data["partial"], data["exit_code"]) == ("foreword.ab/1", False, 3)
    assert data["verdict"]["word"] == data["primary"]["verdict"] == "worse"
    primary = data["primary"]
    assert primary["change"]["low"] < 0.3 < primary["change"]["high"]
    assert primary["difference"]["value"] == pytest.approx(primary["b"] - primary["a"])
    assert 50 < primary["a"] < 200, "milliseconds"
    assert data["aa"]["verdict"] == "not shown"
    assert [len(pair["a"]["ttft_ms"]) for pair in data["pairs"]] == [10] * 12
    assert data["evidence"]["a"] == {
        "prompt_tokens": 100, "cached_tokens": 64, "completion_tokens": 8, "cached_tokens.pool": 64,
        "chunks": 1, "isa": "avx2",
    }  # fmt: skip
    assert data["idle_cpu"] == {"a": 0.0005, "b": 0.0}


def test_people_read_the_verdict_last() -> None:
    text = shown(report_of(measured()))
    last = text.strip().splitlines()[-1]
    assert last.startswith("Side b is worse: TTFT p50 ")
    assert " ms (+" in last
    assert "A/A, side a with itself (8 pairs, 99%)" in text
    assert "no difference shown" in text
    assert "p99 stands on 2 of each side's requests" in text
    assert "--no-enable-prefix-caching" in text


def test_an_interrupted_run_says_so_and_decides_nothing() -> None:
    found = measured()
    del found.pairs[8:]
    found.ended = "interrupted"
    report = report_of(found)
    assert report.partial
    assert report.verdict.word == "not shown"
    assert "the run ended after 8 of 12 pairs of blocks: interrupted" in shown(report)
    assert report.exit_code == 130
    found.ended = "all requests to side b failed"
    assert report_of(found).exit_code == 1


def test_nothing_measured_can_still_be_told() -> None:
    report = report_of(Measured(ended="interrupted"))
    assert report.to_json()["primary"] is None
    assert shown(report).strip().splitlines()[-1] == "Not shown that side b is better or worse."


def notes_of(found: Measured, **more: Any) -> str:
    return "\n".join(report_of(found, **more).notes)


def test_sides_that_only_claim_to_differ_are_noticed() -> None:
    found = measured(cached_b=64)
    assert "did the options take effect" in notes_of(found)
    assert "did the options take effect" not in notes_of(measured(cached_b=0))
    assert "did the options take effect" not in notes_of(found, sides={"a": "x", "b": "x"})


def test_other_work_on_one_side_is_noticed() -> None:
    found = measured()
    found.records["b"] = [record(cached=64)]
    object.__setattr__(found.records["b"][0], "completion_tokens", 3)
    assert "the sides did not do the same work: completion_tokens differ" in notes_of(found)


def test_an_idle_side_that_is_not_idle_is_noticed() -> None:
    found = measured()
    found.idle_cpu["b"] = [0.5, 0.7]
    assert "side b used 60% of a core while it had nothing to do" in notes_of(found)


def test_failures_are_noticed_and_counted() -> None:
    found = measured()
    values = np.array([0.1, np.nan])
    found.pairs.append(
        BlockPair(Block(values, values, None, 1.0), Block(values, values, None, 1.0), "a")
    )
    assert "of side a's requests failed" in notes_of(found)
    data = report_of(found).to_json()
    assert data["pairs"][-1]["a"]["ttft_ms"] == [100.0, None]


def test_evidence_is_of_successful_requests() -> None:
    failed = record(cached=1000, failure=Failure(ErrorKind.RESET, "gone"))
    found = gather([record(cached=10), record(cached=20, isa="avx512"), failed])
    assert found["cached_tokens"] == 15
    assert found["isa"] == "avx2, avx512"
    assert gather([failed]) == {}


def test_evidence_that_differs_by_chance_is_taken_for_equal() -> None:
    assert differing({"chunks": 1.0, "isa": "a"}, {"chunks": 1.01, "isa": "a"}) == []
    assert differing({"chunks": 1.0, "isa": "a"}, {"chunks": 1.5, "isa": "b"}) == ["chunks", "isa"]
    assert differing({"tier": 0.0}, {}) == ["tier"]


def divergence(kl: float, perplexity_change: float, same_top: float) -> Divergence:
    count = 1000
    return Divergence(
        np.zeros(count), np.full(count, np.log1p(perplexity_change)), np.full(count, kl),
        np.arange(count) < same_top * count,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ((0, 0, 1), (0.001, 0.001, 0.98), True),
        ((0, 0, 1), (0.004, 0.001, 0.98), False),
        ((0, 0, 1), (0.001, 0.02, 0.98), False),
        ((0, 0, 1), (0.001, -0.02, 0.98), True),  # better than float32: no loss
        ((0, 0, 1), (0.001, 0.001, 0.9), False),
        ((0.01, 0.03, 0.8), (0.009, 0.02, 0.85), True),  # side a is no better
        ((0.01, 0.03, 0.8), (0.02, 0.02, 0.85), False),
    ],
)
def test_the_quality_gate(a: tuple[float, ...], b: tuple[float, ...], same: bool) -> None:
    quality = Quality(divergence(*a), divergence(*b))
    assert quality.same is same
    report = report_of(measured(-0.3), quality=quality)
    assert report.verdict.word == ("better" if same else "faster, but not the same quality")
    assert report.to_json()["quality"]["same"] is same
    assert ("Quality: the same." if same else "Quality: side b's is worse.") in shown(report)
