"""From figures to a word and an exit status."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foreword.bench.ab.blocks import Block, BlockPair
from foreword.bench.ab.settings import AbSettings
from foreword.bench.ab.verdict import EXIT_CODES, Findings, Verdict, decide, find
from foreword.errors import ConfigError

SETTINGS = AbSettings(pairs=10, requests=5, aa_pairs=8)


def pairs_of(
    b_over_a: float, count: int = 10, failed: int = 0, noise: float = 0.01
) -> list[BlockPair]:
    rng = np.random.default_rng(0)

    def block(scale: float, failed: int = 0) -> Block:
        values = scale * np.exp(rng.normal(size=5) * noise)
        values[:failed] = np.nan
        return Block(values, values / 10, 3, float(5 * scale))

    return [BlockPair(block(0.1), block(0.1 * b_over_a, failed), "a") for _ in range(count)]


def judge(
    b_over_a: float,
    settings: AbSettings = SETTINGS,
    *,
    aa: float = 1.0,
    same_quality: bool | None = None,
) -> Verdict:
    pairs = pairs_of(b_over_a)
    findings = find(pairs, pairs_of(aa, 8), settings, resamples=500)
    return decide(findings, pairs, settings, same_quality=same_quality)


@pytest.mark.parametrize(
    ("b_over_a", "word", "status"), [(0.8, "better", 0), (1.2, "worse", 3), (1.0, "not shown", 4)]
)
def test_the_primary_metric_decides(b_over_a: float, word: str, status: int) -> None:
    verdict = judge(b_over_a)
    assert (verdict.word, verdict.exit_code) == (word, status)


def test_another_metric_can_be_named() -> None:
    goodput = judge(0.8, replace(SETTINGS, primary="goodput"))
    assert goodput.word == "better", "as many good requests in less time"


def test_equal_enough_passes_where_a_margin_was_given() -> None:
    within = replace(SETTINGS, non_inferior=0.05)
    assert judge(1.0, within) == Verdict("not worse", judge(1.0, within).reasons)
    assert judge(1.0, within).exit_code == 0
    assert judge(1.02, SETTINGS).word == "worse"
    assert judge(1.02, within).word == "not worse", "shown to be slower, but by less than matters"
    assert judge(1.2, within).word == "worse"
    assert judge(0.8, within).word == "better"


def test_without_the_quality_faster_is_not_better() -> None:
    verdict = judge(0.8, same_quality=False)
    assert verdict.word == "faster, but not the same quality"
    assert verdict.exit_code == 5
    assert judge(0.8, same_quality=True).word == "better"
    assert judge(1.2, same_quality=False).word == "worse"
    equal = judge(1.0, replace(SETTINGS, non_inferior=0.05), same_quality=False)
    assert equal.word == "not shown"
    assert "quality" in equal.reasons[0]


def test_a_difference_of_a_from_itself_forbids_any_verdict() -> None:
    verdict = judge(0.5, aa=0.8)
    assert verdict.word == "not shown"
    assert "side a differs from side a" in verdict.reasons[0]


def test_failures_and_an_early_end_forbid_it_too() -> None:
    pairs = pairs_of(0.5, 8, failed=1)
    findings = find(pairs, [], SETTINGS, resamples=500)
    assert findings.noise is None
    verdict = decide(findings, pairs, SETTINGS, ended="side b died")
    assert verdict.word == "not shown"
    assert [reason.split()[0] for reason in verdict.reasons] == ["the", "20.0%"]
    assert verdict.reasons[0].endswith("8 of 10 pairs of blocks: side b died.")
    assert "side b's requests failed" in verdict.reasons[1]


def test_goodput_counts_what_failed_by_itself() -> None:
    settings = replace(SETTINGS, primary="goodput")
    pairs = pairs_of(0.5, failed=1)
    assert decide(find(pairs, [], settings, resamples=500), pairs, settings).word == "better"


def test_nothing_measured_is_nothing_shown() -> None:
    findings = find([], [], SETTINGS)
    assert findings.effects == ()
    assert decide(findings, [], SETTINGS).word == "not shown"
    assert findings.to_json() == {"primary": None, "secondary": [], "aa": None}


def test_the_other_metrics_share_one_error() -> None:
    findings = find(pairs_of(1.0), [], SETTINGS, resamples=500)
    assert isinstance(findings, Findings)
    assert [effect.metric.name for effect in findings.secondary] == [
        "ttft_p99", "tpot_p50", "tpot_p99", "goodput",
    ]  # fmt: skip
    assert findings.primary is not None
    assert findings.primary.confidence == 0.95
    assert {effect.confidence for effect in findings.secondary} == {1 - 0.05 / 4}


def test_no_verdict_has_the_status_of_an_error() -> None:
    assert set(EXIT_CODES.values()).isdisjoint({1, 2, 130})


@pytest.mark.parametrize(
    "bad",
    [
        {"pairs": 7}, {"requests": 0}, {"warmup": -1}, {"aa_pairs": 7}, {"confidence": 1.0},
        {"non_inferior": 5.0}, {"primary": "speed"}, {"cooldown_s": float("nan")}, {"seed": -1},
    ],
    ids=str,
)  # fmt: skip
def test_designs_that_measure_nothing_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        AbSettings(**bad)  # type: ignore[arg-type]
