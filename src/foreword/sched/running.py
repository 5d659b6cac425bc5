"""The sequences that hold blocks."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import merge

from foreword.sched.sequence import Sequence


class RunningSet:
    """Sequences that hold blocks, by what they are to get from a step; each list oldest first.

    Attributes:
        streams: those that miss a single token: they get it in every step.
        part_way: those that miss more: prompts, and sequences that are computed again.
        settled: those of them all that will not be preempted.
    """

    def __init__(self) -> None:
        self.streams: list[Sequence] = []
        self.part_way: list[Sequence] = []
        self.settled: list[Sequence] = []

    def __len__(self) -> int:
        return len(self.streams) + len(self.part_way)

    def __iter__(self) -> Iterator[Sequence]:
        return merge(self.streams, self.part_way, key=_age)

    @property
    def num_slots(self) -> int:
        """Completions that the sequences stand for."""
        return sum([len(seq.draws) for each in (self.streams, self.part_way) for seq in each])

    def add(self, seq: Sequence) -> None:
        """Put a sequence in its place."""
        insort(self.streams if seq.num_missing == 1 else self.part_way, seq, key=_age)
        if seq.is_settled:
            self.settled.append(seq)

    def advance(self, seq: Sequence) -> None:
        """Note that a part-way sequence has come further."""
        if seq.num_missing == 1 and seq in self.part_way:
            self.part_way.remove(seq)
            insort(self.streams, seq, key=_age)

    def remove(self, seq: Sequence) -> None:
        """Take a sequence out."""
        (self.streams if seq.num_missing == 1 else self.part_way).remove(seq)
        if seq.is_settled:
            self.settled.remove(seq)

    def sweep(self) -> None:
        """Take those out that have ended."""
        self.streams = [seq for seq in self.streams if not seq.ended]
        self.part_way = [seq for seq in self.part_way if not seq.ended]
        self.settled = [seq for seq in self.settled if not seq.ended]


def _age(seq: Sequence) -> tuple[int, int]:
    return seq.rank
