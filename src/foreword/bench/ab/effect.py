"""How much two sides differ by one figure, how sure that is, and what could have been seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foreword.bench.ab.blocks import BlockPair
from foreword.bench.ab.metrics import Figure, Metric, Weights
from foreword.bench.ab.settings import fewest_pairs
from foreword.errors import ForewordError

Word = Literal["better", "worse", "not shown"]

RESAMPLES = 4000
_POWER = 0.9  # of one test; two are asked, and simulations then show four of five
_CELLS = 2**21  # of the resamples' running sums at a time


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and where the true one may be."""

    value: float
    low: float
    high: float

    def __mul__(self, factor: float) -> Interval:
        """Return the interval in another unit (``factor`` > 0)."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @property
    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Effect:
    """Side b beside side a, by one figure.

    Attributes:
        pairs: pairs of blocks that have the figure.
        a, b: the figure of each.
        difference: b less a.
        change: b over a, less one; None where a pair's a may be zero.
        confidence: that the true value is inside its interval.
        p_value: how often pairs say as much for a difference when a coin puts the labels a and b on
            their blocks.
        detectable: the smallest true difference that a run like this one would show four times out
            of five.
    """

    metric: Metric
    pairs: int
    a: float
    b: float
    difference: Interval
    change: Interval | None
    confidence: float
    p_value: float
    detectable: float

    @property
    def word(self) -> Word:
        """What was shown of side b, by the interval and by the exchange of labels both."""
        if not self.difference.excludes_zero or self.p_value > 1 - self.confidence:
            return "not shown"
        return "better" if (self.difference.value < 0) == self.metric.lower_is_better else "worse"

    @property
    def worst_loss(self) -> float:
        """By how much b may be worse than a, in shares of a; negative: b is surely better."""
        if self.change is None:
            return math.inf
        return self.change.high if self.metric.lower_is_better else -self.change.low

    def to_json(self) -> dict[str, Any]:
        """Give the effect as plain data, in the label's unit; ``change`` in shares of a."""
        scale = self.metric.scale
        return {
            "metric": self.metric.name,
            "label": self.metric.label,
            "lower_is_better": self.metric.lower_is_better,
            "pairs": self.pairs,
            "a": self.a * scale,
            "b": self.b * scale,
            "difference": asdict(self.difference * scale),
            "change": self.change and asdict(self.change),
            "confidence": self.confidence,
            "p_value": self.p_value,
            "detectable_difference": self.detectable * scale,
            "verdict": self.word,
        }


def measure_effect(
    metric: Metric,
    pairs: Sequence[BlockPair],
    *,
    confidence: float,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Effect | None:
    """Compare the sides of ``pairs`` by ``metric``; None where too few pairs have the figure.

    Requests of a block share the machine's mood, so all resampling is of pairs of blocks: of single
    requests it would find intervals far too narrow. Two methods, and a verdict asks both:

    * A BCa bootstrap interval (Efron 1987, by scipy). From few draws it is too narrow, so its level
      is raised by what Student's t asks for beside the normal distribution (Hesterberg 2015, "What
      teachers should know about the bootstrap", section 5.3).
    * Exchange of the labels within pairs (Fisher's randomisation test; for a quantile, of the
      counts above it, as Mood's test has them): which side went first was drawn, so its error rate
      holds for any noise and any number of pairs, where a bootstrap of a p99 over few requests
      errs too often.
    """
    figure = metric.figure(pairs)
    count = figure.count
    if count < fewest_pairs(confidence):
        return None
    cells = sum(2 * len(pair.a.ttft_s) for pair in pairs)
    sample = _Sample(figure, rng, resamples, batch=max(1, _CELLS // cells))
    difference = sample.bca(sample.difference, confidence)
    t_tail, t_power = _t((1 + confidence) / 2, count), _t(_POWER, count)
    half_width = (difference.high - difference.low) / 2
    return Effect(
        metric=metric,
        pairs=count,
        a=float(sample.side(0, sample.once)),
        b=float(sample.side(1, sample.once)),
        difference=difference,
        change=sample.bca(sample.change, confidence) if sample.a_is_positive else None,
        confidence=confidence,
        p_value=sample.exchange(),
        detectable=half_width * (1 + t_power / t_tail),
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Pairs of blocks to resample, ``batch`` times at once."""

    figure: Figure
    rng: np.random.Generator
    resamples: int
    batch: int

    @property
    def once(self) -> Weights:
        """Every pair as it was."""
        return np.ones(self.figure.count, np.int64)

    def side(self, side: int, weights: Weights) -> NDArray[np.float64]:
        """The figure of one side whose blocks have ``weights`` (``[..., pairs]``)."""
        both = [np.zeros_like(weights), np.zeros_like(weights)]
        both[side] = weights
        return self.figure.of(np.stack(both, axis=-2))

    def difference(self, weights: Weights) -> NDArray[np.float64]:
        """Side b's less side a's."""
        return self.side(1, weights) - self.side(0, weights)

    def change(self, weights: Weights) -> NDArray[np.float64]:
        """Side b's over side a's, less one."""
        return self.side(1, weights) / self.side(0, weights) - 1

    @property
    def a_is_positive(self) -> bool:
        """Whether side a's figure is positive whichever pairs are drawn."""
        return bool((self.side(0, np.eye(self.figure.count, dtype=np.int64)) > 0).all())

    def bca(self, value: Callable[[Weights], NDArray[np.float64]], confidence: float) -> Interval:
        """Find the interval of `difference` or `change`."""
        stats = import_stats()
        count = self.figure.count
        each = np.arange(count)
        seen = float(value(self.once))
        if np.ptp(value(1 - np.eye(count, dtype=np.int64))) == 0:
            return Interval(seen, seen, seen)  # no pair makes a difference: there is no spread

        def statistic(drawn: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
            del axis  # the last
            return value((drawn[..., None] == each).sum(-2))

        tail = stats.norm.sf((count / (count - 1)) ** 0.5 * _t((1 + confidence) / 2, count))
        ends = stats.bootstrap(
            (each,),
            statistic,
            vectorized=True,
            n_resamples=self.resamples,
            batch=self.batch,
            confidence_level=1 - 2 * float(tail),
            method="BCa",
            rng=self.rng,
        ).confidence_interval
        return Interval(seen, float(ends.low), float(ends.high))

    def exchange(self) -> float:
        """Share of exchanges of labels under which the scores sum up to no less."""
        scores = self.figure.scores
        count = len(scores)
        if 2**count <= self.resamples:  # all there are
            signs = 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
        else:
            drawn = self.rng.choice([-1, 1], (self.resamples, count))
            signs = np.concatenate([np.ones((1, count), np.int64), drawn])
        return float((np.abs(signs @ scores) >= abs(scores.sum()) * (1 - 1e-9)).mean())


def _t(probability: float, pairs: int) -> float:
    """Student's t quantile for so many pairs."""
    return float(import_stats().t.ppf(probability, pairs - 1))


def import_stats() -> Any:
    """Give ``scipy.stats``.

    Raises:
        ForewordError: it is not installed; says how.
    """
    try:
        from scipy import stats
    except ImportError:
        raise ForewordError("intervals need scipy: pip install 'foreword[bench]'") from None
    return stats
