"""Quantiles of many numbers in little memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ACCURACY = 0.01
_GAMMA = (1 + _ACCURACY) / (1 - _ACCURACY)
_LOG_GAMMA = math.log(_GAMMA)
_SMALLEST = 1e-9


class Sketch:
    """Counts numbers in buckets that grow by 2 %, so that any quantile is right within 1 %.

    Sketches add up: that of an hour is the sum of its minutes'. This is DDSketch (Masson, Rim and
    Lee, VLDB 2019) without a limit on buckets: from a nanosecond to a day there are 1,600.

    Attributes:
        count: how many numbers.
        max: the largest, exactly.
    """

    __slots__ = ("_buckets", "count", "max")

    def __init__(self) -> None:
        self.count = 0
        self.max = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count a number; those below a billionth count as that."""
        index = math.ceil(math.log(max(value, _SMALLEST)) / _LOG_GAMMA)
        self._buckets[index] = self._buckets.get(index, 0) + 1
        self.count += 1
        self.max = max(self.max, value)

    def merge(self, other: Sketch) -> None:
        """Count what ``other`` counted, too."""
        for index, count in other._buckets.items():
            self._buckets[index] = self._buckets.get(index, 0) + count
        self.count += other.count
        self.max = max(self.max, other.max)

    def quantiles(self, ranks: Sequence[float]) -> list[float]:
        """Return the numbers at ``ranks`` (0 … 1, ascending).

        Raises:
            ValueError: nothing has been counted.
        """
        if not self.count:
            raise ValueError("nothing has been counted")
        buckets = iter(sorted(self._buckets.items()))
        index, seen = next(buckets)
        found = []
        for rank in ranks:
            while seen <= rank * (self.count - 1):
                index, count = next(buckets)
                seen += count
            found.append(min(self.max, 2 * _GAMMA**index / (_GAMMA + 1)))
        return found
