"""What a replica had to do over time, in a bounded number of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from foreword.sched import SchedulerStats

_MOST_POINTS = 512


class Point(NamedTuple):
    """The state at an instant.

    Attributes:
        running, waiting: sequences.
        computed_tokens: since the start, prompt or not.
    """

    at_s: float
    running: int
    waiting: int
    computed_tokens: int


class Curve:
    """Points about evenly apart; once they are too many, every second one is dropped.

    Attributes:
        points: by time.
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._interval_s = 0.0
        self._next_s = 0.0

    def note(self, now_s: float, look: Callable[[], SchedulerStats]) -> None:
        """Add a point, if it is time for one."""
        if now_s < self._next_s:
            return
        stats = look()
        self.points.append(
            Point(now_s, stats.num_running, stats.num_waiting, stats.totals.computed_tokens)
        )
        if len(self.points) == _MOST_POINTS:
            del self.points[1::2]
            self._interval_s = (now_s - self.points[0].at_s) / len(self.points)
        self._next_s = now_s + self._interval_s
