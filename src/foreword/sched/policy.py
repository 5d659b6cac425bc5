"""In which order prompts are served."""

from __future__ import annotations

from math import inf
from typing import Protocol

from foreword.sched.sequence import Sequence


class Policy(Protocol):
    """Ranks the sequences that need more than one token.

    Attributes:
        fills_steps: whether each step takes as many tokens as it may, even where that delays
            prompts which it completes more than it gains for those behind them.
    """

    fills_steps: bool

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """What sorts the sequences, the most urgent first; older before younger on a tie.

        It is taken when a sequence begins to wait, when the cache has more or less of it than then,
        and in each step while it is part-way.
        """
        ...


class FirstComeFirstServed:
    """Older before younger, each step filled: what most engines do, to compare with."""

    fills_steps = True

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Nothing but its age."""
        return ()


class ShortestFirst:
    """The fewest tokens still to compute first: the least mean TTFT (Schrage, SRPT, 1968)."""

    fills_steps = False

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """What is neither computed nor expected from the cache."""
        return (seq.num_uncached,)


class HighestPriority:
    """The smallest ``priority`` of a request first, the shortest among equals."""

    fills_steps = False

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Its request's priority, then its length."""
        return (seq.tracked.request.urgency.priority, seq.num_uncached)


class EarliestDeadline:
    """The earliest arrival + ``ttft_slo_ms`` first; then those without one, the shortest first."""

    fills_steps = False

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """When its first token is due, then its length."""
        slo_ms = seq.tracked.request.urgency.ttft_slo_ms
        due_s = inf if slo_ms is None else seq.tracked.queued_s + slo_ms / 1000
        return (due_s, seq.num_uncached)


POLICIES: dict[str, type[Policy]] = {
    "fcfs": FirstComeFirstServed,
    "shortest": ShortestFirst,
    "priority": HighestPriority,
    "deadline": EarliestDeadline,
}
