"""Which cached block to give up first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from foreword.kv.radix import Node

_MOST_USES = 8  # beyond it, use makes no block worth more: what was popular once has to go some day
_MOST_DOUBLINGS = 3  # of a block's weight
_SLACK = 64  # stale entries that are no trouble


def recompute_cost(attention: float) -> float:
    """What computing a block again costs beside one at the start of a sequence, from 1 to 2.

    Bounded, though the work is not: the end of one very long prompt, however dear, must not be
    worth more than what is used often.

    Args:
        attention: its work in attention, relative to that in matrices.
    """
    return 1 + attention / (1 + attention)


def weight(priority: int) -> float:
    """How much use by a request of this priority counts.

    1 for priority 0; it doubles with each step to a more urgent one, which is a smaller number, and
    halves with each step the other way, both three times at most.
    """
    return 2.0 ** max(-_MOST_DOUBLINGS, min(_MOST_DOUBLINGS, -priority))


class GreedyDual:
    """Keeps what is used often, recently, and dear to compute again.

    GreedyDual-Size with frequency (Cherkasova 1998) over the leaves of the tree: a block that falls
    idle is worth ``floor + weight x uses x cost`` (see `weight`), the least valuable leaf goes
    first, and the floor rises to its value. So a block that was used eight times outlives seven
    pools full of blocks that were used once, and not more.

    What a prompt in line would use (`Node.awaited`) goes after all else: that much of the future is
    known (Belady 1966).

    Args:
        cost: of computing the block with ``depth`` blocks before it, relative to others.
    """

    def __init__(self, cost: Callable[[int], float]) -> None:
        self._cost = cost
        self._floor = 0.0
        self._entries = count()  # equal values: whichever came first
        self._heap: list[tuple[float, int, Node]] = []
        self._due: list[Node] = []  # worth no more than the floor: they go before all others
        self._spared: list[tuple[float, int, Node]] = []  # came up, but somebody awaits them

    def add(self, node: Node) -> None:
        """A block fell idle."""
        uses = min(1 + node.hits, _MOST_USES)
        node.value = self._floor + node.weight * uses * self._cost(node.depth)
        self.expose(node)

    def demote(self, node: Node) -> None:
        """A block is of no use any more."""
        node.value = float("-inf")
        self.expose(node)

    def expose(self, node: Node) -> None:
        """A block may go, if it is an idle leaf: it fell idle, or lost its last child or pin."""
        if not _can_go(node):
            return
        if node.value <= self._floor:
            self._due.append(node)
        else:
            node.entry = next(self._entries)
            heappush(self._heap, (node.value, node.entry, node))

    def pop(self) -> Node:
        """The leaf to give up; there must be one."""
        while self._due:
            node = self._due.pop()
            if node.value <= self._floor and _can_go(node):
                if node.awaited is None:
                    return node
                self._spare(node)
        while (least := _pop(self._heap)) is not None and least[1].awaited is not None:
            self._spare(least[1])
        least = least or _pop(self._spared)
        assert least is not None, "no leaf is left"
        value, node = least
        self._floor = max(self._floor, value)
        return node

    def compact(self, num_idle: int) -> None:
        """Drop entries of blocks that are in use again, once they outnumber the others."""
        if len(self._heap) + len(self._due) + len(self._spared) > 2 * num_idle + _SLACK:
            self._heap, self._spared = (
                [e for e in heap if e[1] == e[2].entry and _can_go(e[2])]
                for heap in (self._heap, self._spared)
            )
            heapify(self._heap)
            heapify(self._spared)
            due = dict.fromkeys(self._due)
            self._due = [node for node in due if node.value <= self._floor and _can_go(node)]

    def _spare(self, node: Node) -> None:
        node.entry = next(self._entries)
        heappush(self._spared, (node.value, node.entry, node))


def _pop(heap: list[tuple[float, int, Node]]) -> tuple[float, Node] | None:
    """Take the least out, with its value, past those that are in use again; None: all are."""
    while heap:
        value, entry, node = heappop(heap)
        if entry == node.entry and _can_go(node):
            return value, node
    return None


def _can_go(node: Node) -> bool:
    return node.idle_since_s is not None and not node.children and not node.pins
