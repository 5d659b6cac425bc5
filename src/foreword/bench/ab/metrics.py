"""The figures that two sides are compared by, each of them over all blocks of a side.

A figure is computed from *weights*: how often each block counts. So a resampling is a matrix of
weights: a block that was drawn twice counts twice, one that was not drawn or belongs to the other
side, not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from foreword.bench.ab.blocks import BlockPair

Weights = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric of the pairs that have it.

    Attributes:
        count: those pairs.
        of: from weights ``[..., 2, count]``, side a's blocks and side b's, to the metric ``[...]``.
        scores: what each pair says for side b having more (``[count]``); with its labels swapped,
            it says as much for less.
    """

    count: int
    of: Callable[[Weights], NDArray[np.float64]]
    scores: NDArray[np.float64]


class Metric(Protocol):
    """A figure with a better direction."""

    @property
    def name(self) -> str:
        """As options and reports call it."""
        ...

    @property
    def label(self) -> str:
        """For people, with the unit."""
        ...

    @property
    def scale(self) -> float:
        """From the figure to the label's unit."""
        ...

    @property
    def lower_is_better(self) -> bool:
        """Whether less is more."""
        ...

    def figure(self, pairs: Sequence[BlockPair]) -> Figure:
        """Give the figure of those pairs that have it."""
        ...


@dataclass(frozen=True, slots=True)
class LatencyQuantile:
    """A quantile over all requests that both sides of their pair have a latency for.

    Attributes:
        of: the array of `Block` that it is taken from.
        quantile: in (0, 1), interpolated linearly as numpy does.
    """

    name: str
    label: str
    of: Literal["ttft_s", "tpot_s"]
    quantile: float
    scale: float = 1e3
    lower_is_better: bool = True

    def figure(self, pairs: Sequence[BlockPair]) -> Figure:
        """See `Metric.figure`; a pair's score is how many of b's requests, less a's, lie above.

        Above the quantile of the pair's own requests, so that a slow spell which falls on the whole
        pair says nothing.
        """
        of_a, of_b = [], []
        for pair in pairs:
            a, b = getattr(pair.a, self.of), getattr(pair.b, self.of)
            both = ~(np.isnan(a) | np.isnan(b))
            if both.any():
                of_a.append(a[both])
                of_b.append(b[both])
        scores = [
            _above(b, a, self.quantile) - _above(a, b, self.quantile)
            for a, b in zip(of_a, of_b, strict=True)
        ]
        return Figure(len(of_a), _weighted_quantile(of_a + of_b, self.quantile), np.array(scores))


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests per second that met the SLO."""

    name: str = "goodput"
    label: str = "goodput, req/s"
    scale: float = 1.0
    lower_is_better: bool = False

    def figure(self, pairs: Sequence[BlockPair]) -> Figure:
        """See `Metric.figure`; a pair's score is its own difference."""
        kept = [pair for pair in pairs if pair.a.num_good is not None]
        blocks = [pair.a for pair in kept] + [pair.b for pair in kept]
        good = np.array([block.num_good for block in blocks], np.float64)
        duration_s = np.array([block.duration_s for block in blocks])
        rates_a, rates_b = (good / duration_s).reshape(2, -1)

        def rate(weights: Weights) -> NDArray[np.float64]:
            flat = weights.reshape(*weights.shape[:-2], -1)
            return np.asarray((flat * good).sum(-1) / (flat * duration_s).sum(-1))

        return Figure(len(kept), rate, rates_b - rates_a)


METRICS: tuple[Metric, ...] = (
    LatencyQuantile("ttft_p50", "TTFT p50, ms", "ttft_s", 0.5),
    LatencyQuantile("ttft_p99", "TTFT p99, ms", "ttft_s", 0.99),
    LatencyQuantile("tpot_p50", "TPOT p50, ms", "tpot_s", 0.5),
    LatencyQuantile("tpot_p99", "TPOT p99, ms", "tpot_s", 0.99),
    Goodput(),
)


def find_metric(name: str) -> Metric:
    """Return the metric of that name, one of `METRIC_NAMES`."""
    return next(metric for metric in METRICS if metric.name == name)


def _above(values: NDArray[np.float64], others: NDArray[np.float64], quantile: float) -> float:
    """How many of ``values`` are above the quantile of both, less how many are below."""
    return float(np.sign(values - np.quantile([*values, *others], quantile)).sum())


def _weighted_quantile(
    blocks: Sequence[NDArray[np.float64]], quantile: float
) -> Callable[[Weights], NDArray[np.float64]]:
    """Make ``np.quantile`` of values that count as often as their block's weight says.

    Sorted once, so that thousands of resamplings cost a running sum each.
    """
    values = np.concatenate([np.empty(0), *blocks])  # no blocks: no values
    block = np.repeat(np.arange(len(blocks)), [len(values) for values in blocks])
    order = np.argsort(values, kind="stable")
    values, block = values[order], block[order]

    def estimate(weights: Weights) -> NDArray[np.float64]:
        flat = weights.reshape(*weights.shape[:-2], -1)
        reach = np.cumsum(flat[..., block], axis=-1)  # how many values are among the first
        last = reach[..., -1:] - 1
        place = last * quantile
        below = np.floor(place).astype(np.int64)
        lower = values[np.argmax(reach > below, axis=-1)]
        upper = values[np.argmax(reach > np.minimum(below + 1, last), axis=-1)]
        return np.asarray(lower + (place - below)[..., 0] * (upper - lower))

    return estimate
