"""Numbers that stand for many."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and range of repeated measurements: what a noisy machine leaves meaningful."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        """Summarise at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How measurements are spread. Of fewer than a hundred, p99 is little more than the worst."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Percentiles:
        """Summarise at least one value."""
        ordered = sorted(values)
        p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
        return cls(len(ordered), p50, p90, p99, ordered[-1])


def percentile(ordered: Sequence[float], share: float) -> float:
    """Give the value that ``share`` of the ordered values lie below, between two neighbours."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
