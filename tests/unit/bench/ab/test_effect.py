"""The statistics on simulated machines: how often they err, and what they see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.noise import NoisyMachine, VirtualRun

from foreword.bench.ab.blocks import Block, BlockPair
from foreword.bench.ab.effect import Effect, measure_effect
from foreword.bench.ab.metrics import Goodput, find_metric
from foreword.bench.ab.settings import fewest_pairs

TTFT = find_metric("ttft_p50")


def effect_of(
    pairs: Sequence[BlockPair], metric: str = "ttft_p50", seed: int = 0, confidence: float = 0.95
) -> Effect:
    rng = np.random.default_rng(seed)
    effect = measure_effect(
        find_metric(metric), pairs, confidence=confidence, rng=rng, resamples=500
    )
    assert effect is not None
    return effect


def simulate(run: VirtualRun, metric: str, times: int, **noise: float) -> list[Effect]:
    machine = NoisyMachine(1, **noise)
    return [effect_of(run.measure(machine, seed), metric, seed) for seed in range(times)]


@pytest.mark.parametrize("metric", ["ttft_p50", "ttft_p99"])
@pytest.mark.parametrize(
    "noise", [{}, {"spells": 0.3, "spell_s": 3.0}, {"jitter": 0.25, "tail": 0.1}], ids=str
)
def test_equal_sides_seldom_seem_different(metric: str, noise: dict[str, float]) -> None:
    effects = simulate(VirtualRun(pairs=10, requests=10), metric, 100, **noise)
    wrong = sum(effect.word != "not shown" for effect in effects)
    assert wrong <= 10, "5 are expected; 10 or fewer in 99 of 100 such tests"


def test_ten_percent_are_found_and_its_interval_is_right() -> None:
    effects = simulate(VirtualRun(pairs=24, requests=16, slower=0.1), "ttft_p50", 60)
    assert sum(effect.word == "worse" for effect in effects) >= 54
    changes = [effect.change for effect in effects if effect.change]
    assert sum(change.low <= 0.1 <= change.high for change in changes) >= 54
    assert np.mean([change.value for change in changes]) == pytest.approx(0.1, abs=0.01)


def test_what_a_run_says_it_would_have_shown_it_shows() -> None:
    equal = simulate(VirtualRun(pairs=24, requests=10), "ttft_p50", 60)
    detectable = float(np.median([effect.detectable / effect.a for effect in equal]))
    planted = VirtualRun(pairs=24, requests=10, slower=detectable)
    found = sum(effect.word == "worse" for effect in simulate(planted, "ttft_p50", 60))
    assert 60 * 0.6 <= found <= 60 * 0.95, "four of five"


def test_more_pairs_show_smaller_effects() -> None:
    few, many = (
        simulate(VirtualRun(pairs=pairs, requests=10), "ttft_p50", 20) for pairs in (8, 32)
    )
    ratio = np.median([e.detectable for e in few]) / np.median([e.detectable for e in many])
    assert 1.5 < ratio < 4, "half, and less for Student's t"


def constant(a: float, b: float, good: tuple[int, int] | None = None) -> list[BlockPair]:
    def block(value: float, num_good: int | None) -> Block:
        return Block(np.full(4, value), np.full(4, value / 10), num_good, 1.0)

    goods = good or (None, None)
    return [BlockPair(block(a, goods[0]), block(b, goods[1]), "a")] * 8


def test_sides_that_never_differ_are_not_shown_to() -> None:
    effect = effect_of(constant(0.1, 0.1))
    assert (effect.difference.low, effect.difference.high, effect.p_value) == (0.0, 0.0, 1.0)
    assert effect.word == "not shown"


@pytest.mark.parametrize(("b", "word"), [(0.09, "better"), (0.11, "worse")])
def test_sides_that_always_differ_are(b: float, word: str) -> None:
    effect = effect_of(constant(0.1, b))
    assert effect.word == word
    assert effect.difference.low == effect.difference.high == pytest.approx(b - 0.1)
    assert effect.worst_loss == pytest.approx(b / 0.1 - 1)


def test_more_goodput_is_better_even_from_nothing() -> None:
    rng = np.random.default_rng(0)
    effect = measure_effect(
        Goodput(), constant(0.1, 0.1, good=(0, 3)), confidence=0.95, rng=rng, resamples=500
    )
    assert effect is not None
    assert (effect.word, effect.a, effect.b, effect.change) == ("better", 0.0, 3.0, None)
    assert effect.to_json()["change"] is None


def test_few_pairs_say_nothing() -> None:
    pairs = constant(0.1, 0.2)[: fewest_pairs(0.95) - 1]
    rng = np.random.default_rng(0)
    assert measure_effect(TTFT, pairs, confidence=0.95, rng=rng) is None


def test_the_exchange_of_labels_holds_back_what_the_interval_alone_would_say() -> None:
    effect = effect_of(constant(0.1, 0.2))
    assert effect.word == "worse"
    assert replace(effect, p_value=0.2).word == "not shown"


def test_the_same_seed_gives_the_same_interval() -> None:
    pairs = VirtualRun().measure(NoisyMachine(1), 0)
    assert effect_of(pairs, seed=4) == effect_of(pairs, seed=4)
    assert effect_of(pairs, confidence=0.99).difference.high > effect_of(pairs).difference.high
