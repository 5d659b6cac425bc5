"""In which order prompts are served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from foreword.sched.sequence import Sequence


class Policy(Protocol):
    """Ranks the sequences that need more than one token."""

    def order(self, prompts: Iterable[Sequence], now: float) -> Iterable[Sequence]:
        """The same sequences, the most urgent first.

        Args:
            prompts: those that are part-way, then those that wait; each group oldest first.
            now: the time on the clock of `Scheduler.plan`.
        """
        ...


class FirstComeFirstServed:
    """Part-way prompts before waiting ones, older before younger."""

    def order(self, prompts: Iterable[Sequence], now: float) -> Iterable[Sequence]:
        """The prompts as they come; lazy, so that a long queue costs nothing."""
        return prompts
