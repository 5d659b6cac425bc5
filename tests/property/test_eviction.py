"""What goes first, against a list of what everything is worth."""

from __future__ import annotations

from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from foreword.kv.eviction import GreedyDual
from foreword.kv.identity import token_key
from foreword.kv.radix import Node

which = st.integers(0, 1000)
weights = st.sampled_from([0.125, 0.5, 1.0, 2.0, 8.0])


def cost(depth: int) -> float:
    return 1 + depth / 10


class Evictions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.eviction = GreedyDual(cost)
        self.root = Node(b"", None, -1)
        self.nodes: list[Node] = []
        self.worth: dict[Node, float] = {}  # of idle ones
        self.floor = 0.0

    def pick(self, number: int, nodes: list[Node]) -> Node | None:
        return nodes[number % len(nodes)] if nodes else None

    @property
    def held(self) -> list[Node]:
        return [node for node in self.nodes if node.idle_since_s is None]

    @property
    def can_go(self) -> list[Node]:
        return [node for node in self.worth if not node.children and not node.pins]

    def path(self, node: Node) -> list[Node]:
        return [] if node.parent is None else [*self.path(node.parent), node]

    @rule(number=which, weight=weights, hits=st.integers(0, 9), leaves=st.booleans())
    def compute(self, number: int, weight: float, hits: int, leaves: bool) -> None:
        """A sequence goes on from a held block, or begins; it may leave its block at once."""
        parent = self.pick(number, [self.root, *self.held]) or self.root
        node = Node(token_key([len(self.nodes)]), parent, len(self.nodes))
        node.weight, node.hits = weight, hits
        parent.attach(node)
        self.nodes.append(node)
        if leaves:
            node.idle_since_s = 0.0
            self.value(node)

    @rule(number=which)
    def hold(self, number: int) -> None:
        node = self.pick(number, list(self.worth))
        for each in self.path(node) if node else ():
            each.idle_since_s = None
            self.worth.pop(each, None)

    @rule(number=which)
    def leave(self, number: int) -> None:
        """The last block of a path falls idle, and those before it that nothing builds on."""
        ends = [n for n in self.held if all(c.idle_since_s is not None for c in n.children)]
        node = self.pick(number, ends)
        if node:
            node.idle_since_s = 0.0
            self.value(node)

    def value(self, node: Node) -> None:
        uses = min(8, 1 + node.hits)
        self.worth[node] = self.floor + node.weight * uses * cost(node.depth)
        self.eviction.add(node)
        self.eviction.compact(len(self.worth))

    @rule(number=which)
    def demote(self, number: int) -> None:
        node = self.pick(number, [node for node in self.worth if not node.children])
        if node:
            self.worth[node] = -inf
            self.eviction.demote(node)

    @rule(number=which)
    def pin(self, number: int) -> None:
        node = self.pick(number, self.nodes)
        for each in self.path(node) if node else ():
            each.pins += 1

    @rule(number=which)
    def unpin(self, number: int) -> None:
        node = self.pick(number, [n for n in self.nodes if n.pins > max(0, *self.pins_of(n))])
        for each in reversed(self.path(node)) if node else ():
            each.pins -= 1
            if not each.pins and each.idle_since_s is not None:
                self.value(each)

    @rule(number=which)
    def wait(self, number: int) -> None:
        """A prompt in line would begin with a path, or does so no longer."""
        node = self.pick(number, list(self.worth))
        if node and node.awaited is None:
            node.awaited = {b"": {}}
        elif node:
            node.awaited = None
            self.eviction.expose(node)

    def pins_of(self, node: Node) -> list[int]:
        return [0, 0, *(child.pins for child in node.children)]

    @precondition(lambda self: self.can_go)
    @rule(times=st.integers(1, 5))
    def give_up(self, times: int) -> None:
        for _ in range(min(times, len(self.can_go))):
            candidates = [n for n in self.can_go if n.awaited is None] or self.can_go
            least = min(self.worth[node] for node in candidates)
            node = self.eviction.pop()
            assert node in candidates
            # below the floor the order is of no consequence
            assert self.worth[node] == least or self.worth[node] <= self.floor
            self.floor = max(self.floor, self.worth.pop(node))
            self.nodes.remove(node)
            node.idle_since_s = None
            assert node.parent is not None
            node.parent.detach(node)
            self.eviction.expose(node.parent)


Evictions.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestEvictions = Evictions.TestCase
