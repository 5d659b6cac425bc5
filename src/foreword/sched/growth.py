"""How many blocks running sequences will need on top of those that they hold."""

from __future__ import annotations

from collections.abc import Iterable
from math import log

_PRIOR_TOKENS = 128.0  # that a completion is thought to have before one has ended
_TOKENS_KEPT = 65536.0  # older ones count less


class Growth:
    """Foresees how streams grow, from how those before them ended.

    A stream stops with each token with the same chance, as far as can be told before: tokens over
    stops is the likeliest mean of what it still generates, however much it has (the maximum
    likelihood of a geometric distribution whose samples are cut off by ``max_tokens``, by clients
    who leave, and by now).
    """

    def __init__(self) -> None:
        self._tokens = _PRIOR_TOKENS
        self._stops = self._ends = 1.0

    def observe(self, num_tokens: int, num_stops: int, num_ends: int) -> None:
        """Learn from a step.

        Args:
            num_tokens: sampled in it.
            num_stops: of them that ended a stream by what they were.
            num_ends: of them that ended a stream; by its length, too.
        """
        self._tokens += num_tokens
        self._stops += num_stops
        self._ends += num_ends
        if self._tokens > _TOKENS_KEPT:
            self._tokens /= 2
            self._stops /= 2
            self._ends /= 2

    @property
    def mean_length(self) -> float:
        """Tokens of an answer."""
        return self._tokens / self._ends

    def left(self, limit: int) -> int:
        """Tokens that a stream will probably generate, if it may go on for ``limit``."""
        return max(1, min(round(self.mean_length), limit))

    def peak(self, sequences: Iterable[tuple[int, int]]) -> float:
        """The most tokens by which what some sequences hold will exceed what they hold now.

        While some grow, others end and give back what they hold. Sorted by when they end, the sum
        is at its highest when one of them does (Gong et al., Past-Future Scheduler, 2025).

        Args:
            sequences: of each, the tokens that it may still generate, and those that it holds.
        """
        by_end = sorted(sequences)
        mean, count = self._tokens / self._stops, len(by_end)
        most = freed = spare = 0.0
        for place, (limit, held) in enumerate(by_end):
            # the mean of the place-th of so many exponential times, as near as matters
            grown = min(limit, -mean * log(1 - (place + 0.5) / count))
            most = max(most, (count - place) * grown - freed)
            freed += held
            spare = max(spare, min(mean, limit - grown))  # for one that goes on when it should not
        return most + spare
