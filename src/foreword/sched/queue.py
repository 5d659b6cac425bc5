"""Sequences in the order of a policy: those that wait, and those that a step may serve."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator

from foreword.sched.cost import StepLoad
from foreword.sched.policy import Policy
from foreword.sched.sequence import Sequence

Rank = tuple[bool, tuple[float, ...], tuple[int, int]]


def rank(policy: Policy, seq: Sequence) -> Rank:
    """Sorts prompts: streams that were preempted go on before all else, then as the policy says."""
    return not seq.is_stream, policy.key(seq), seq.rank


class WaitingQueue:
    """Sequences without blocks, the next one first. Adding and removing cost O(log n) ranks.

    Attributes:
        num_tokens: tokens that they will have computed, as far as can be told before they start.
    """

    def __init__(self, policy: Policy) -> None:
        self.num_tokens = 0
        self._policy = policy
        self._line: list[tuple[Rank, Sequence]] = []
        self._loads: list[StepLoad] = []  # what each of the line will have computed
        self._entries: dict[int, tuple[Rank, Sequence]] = {}  # as they were added

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Sequence]:
        return (seq for _, seq in self._line)

    def __contains__(self, seq: Sequence) -> bool:
        return seq.seq_id in self._entries

    @property
    def longest_waiting(self) -> Sequence | None:
        """The one that was added first."""
        return next((seq for _, seq in self._entries.values()), None)

    def ranked(self) -> Iterator[tuple[Rank, Sequence]]:
        """The sequences with what sorts them. The queue must not change meanwhile."""
        return iter(self._line)

    def add(self, seq: Sequence) -> None:
        """Put a sequence in its place."""
        entry = rank(self._policy, seq), seq
        self._entries[seq.seq_id] = entry
        at = bisect_left(self._line, entry[0], key=_first)
        self._line.insert(at, entry)
        self._loads.insert(at, load := seq.load)
        self.num_tokens += load.num_tokens

    def reload(self, seq: Sequence) -> None:
        """Put a sequence in its place again: it has more or less to compute than it had."""
        self._take_out(self._entries[seq.seq_id])
        self.add(seq)

    def discard(self, seq: Sequence) -> None:
        """Take a sequence out, if it is there."""
        entry = self._entries.pop(seq.seq_id, None)
        if entry is not None:
            self._take_out(entry)

    def _take_out(self, entry: tuple[Rank, Sequence]) -> None:
        at = bisect_left(self._line, entry[0], key=_first)
        self.num_tokens -= self._loads[at].num_tokens
        del self._line[at], self._loads[at]

    def split(self, num_tokens: int) -> tuple[list[StepLoad], list[Sequence]]:
        """The work of the first, with so many tokens in all at least, and who comes after them."""
        at, total = 0, 0
        while at < len(self._loads) and total < num_tokens:
            total += self._loads[at].num_tokens
            at += 1
        return self._loads[:at], [each for _, each in self._line[at:]]

    def around(self, seq: Sequence) -> tuple[list[StepLoad], list[Sequence]]:
        """The work of those that go before a sequence that is not here, and who goes after it."""
        at = bisect_left(self._line, rank(self._policy, seq), key=_first)
        return self._loads[:at], [each for _, each in self._line[at:]]


class Line:
    """The prompts that a step may serve, one after the other: part-way ones and waiting ones.

    Lazy, so that a long queue costs nothing.

    Attributes:
        oldest: the part-way one and the waiting one that came first.
    """

    def __init__(self, policy: Policy, part_way: Iterable[Sequence], waiting: WaitingQueue) -> None:
        ranked = [(rank(policy, seq), seq) for seq in part_way]
        oldest = [min((seq for _, seq in ranked), key=_age, default=None), waiting.longest_waiting]
        self.oldest = [seq for seq in oldest if seq is not None]
        self._part_way = deque(sorted(ranked, key=_first))
        self._waiting = waiting.ranked()
        self._next_waiting = next(self._waiting, None)
        self._num_left = len(ranked) + len(waiting)

    def __iter__(self) -> Iterator[Sequence]:
        while self.first is not None:
            yield self.pop()

    def pop(self) -> Sequence:
        """Hand out the one that comes next; there must be one."""
        seq = self.first
        assert seq is not None
        self._num_left -= 1
        if self._part_way and self._part_way[0][1] is seq:
            self._part_way.popleft()
        else:
            self._next_waiting = next(self._waiting, None)
        return seq

    @property
    def first(self) -> Sequence | None:
        """The one that comes next."""
        entry = self._next_waiting
        if self._part_way and (entry is None or self._part_way[0][0] < entry[0]):
            entry = self._part_way[0]
        return entry[1] if entry else None

    @property
    def num_left(self) -> int:
        """How many have not been handed out."""
        return self._num_left

    def close(self) -> None:
        """Hand out no more waiting ones."""
        self._next_waiting = None


def _age(seq: Sequence) -> tuple[int, int]:
    return seq.rank


def _first(entry: tuple[Rank, Sequence]) -> Rank:
    return entry[0]
