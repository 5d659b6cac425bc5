"""Figures of weighted blocks, against numpy on blocks that are written out as often."""

from __future__ import annotations

import numpy as np
import pytest

from foreword.bench.ab.blocks import Block, BlockPair, draw_order
from foreword.bench.ab.metrics import METRICS, Goodput, LatencyQuantile, find_metric
from foreword.bench.ab.settings import METRIC_NAMES

TTFT = LatencyQuantile("t", "t", "ttft_s", 0.5)


def block(*ttft_s: float, good: int | None = None, duration_s: float = 1.0) -> Block:
    values = np.array(ttft_s)
    return Block(values, values / 10, good, duration_s)


@pytest.mark.parametrize("quantile", [0.01, 0.5, 0.9, 0.99])
def test_a_quantile_counts_each_block_as_often_as_it_weighs(quantile: float) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, 5)
    pairs = [BlockPair(block(*rng.random(n)), block(*rng.random(n)), "a") for n in sizes]
    figure = LatencyQuantile("t", "t", "ttft_s", quantile).figure(pairs)
    assert figure.count == 5
    weights = rng.integers(0, 4, (50, 2, 5))
    weights[0] = 1
    blocks = [pair.a.ttft_s for pair in pairs] + [pair.b.ttft_s for pair in pairs]
    expected = [
        np.quantile(
            np.concatenate([np.tile(b, w) for b, w in zip(blocks, row, strict=True)]), quantile
        )
        for row in weights.reshape(50, 10)
    ]
    np.testing.assert_allclose(figure.of(weights), expected)


def test_what_failed_on_one_side_is_left_out_on_both() -> None:
    nan = float("nan")
    pairs = [
        BlockPair(block(1, 2, nan), block(10, nan, 30), "a"),
        BlockPair(block(nan), block(5), "b"),
        BlockPair(block(3), block(50), "b"),
    ]
    figure = TTFT.figure(pairs)
    assert figure.count == 2, "the second pair has no request that both sides answered"
    only_a = np.array([[1, 1], [0, 0]])
    assert (figure.of(only_a), figure.of(1 - only_a)) == (2.0, 30.0)
    assert [pair.a.num_failed for pair in pairs] == [1, 1, 0]


def test_goodput_is_good_requests_over_time() -> None:
    pairs = [
        BlockPair(block(1, good=3, duration_s=1.0), block(1, good=1, duration_s=1.0), "a"),
        BlockPair(block(1, good=1, duration_s=3.0), block(1, good=1, duration_s=1.0), "b"),
    ]
    figure = Goodput().figure(pairs)
    assert figure.of(np.array([[1, 1], [0, 0]])) == 1.0
    assert figure.of(np.array([[2, 0], [0, 0]])) == 3.0
    assert Goodput().figure([BlockPair(block(1), block(1), "a")]).count == 0, "no SLO was stated"


def test_metrics_are_found_by_name() -> None:
    assert tuple(metric.name for metric in METRICS) == METRIC_NAMES
    assert [find_metric(name) for name in METRIC_NAMES] == list(METRICS)


def test_the_order_is_balanced_and_drawn() -> None:
    orders = {tuple(draw_order(7, np.random.default_rng(seed))) for seed in range(100)}
    assert len(orders) == 16, "four coins"
    for order in orders:
        assert all({order[i], order[i + 1]} == {"a", "b"} for i in (0, 2, 4))
    assert draw_order(8, np.random.default_rng(3)) == draw_order(8, np.random.default_rng(3))
