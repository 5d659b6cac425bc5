"""The prefix cache: blocks that outlive their sequences, found and kept by what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from foreword.kv.eviction import GreedyDual
from foreword.kv.identity import TOKEN_BYTES, BlockName, TokenChain
from foreword.kv.radix import Match, Node, RadixTree
from foreword.kv.watch import Watch, WatchList

if TYPE_CHECKING:
    from foreword.kv.table import BlockTable


class NewBlock(NamedTuple):
    """A whole block whose contents became known, by its names everywhere and in the pool."""

    name: BlockName
    block: int


class PrefixCache:
    """Contents of the pool's blocks.

    The pool counts references; this decides what happens to a block without any.

    Args:
        cost: of computing a block again, by the number of blocks before it; see `GreedyDual`.
        ttl_s: a block that no sequence held for so long is not found any more, and given up.

    Attributes:
        now: the time, as the scheduler last told it.
        journal: where whole blocks are written down when they are new; None: nowhere.
    """

    def __init__(
        self,
        block_size: int,
        *,
        cost: Callable[[int], float] = lambda depth: 1.0,
        ttl_s: float = inf,
    ) -> None:
        self.now = 0.0
        self.journal: list[NewBlock] | None = None
        self._block_bytes = block_size * TOKEN_BYTES
        self._tree = RadixTree(block_size)
        self._eviction = GreedyDual(cost)
        self._watches = WatchList(self._tree, block_size, self._eviction.expose)
        self._ttl_s = ttl_s
        # Without a reference: an idle node's children fell idle before it, so that the first in
        # this order is a leaf.
        self._idle: dict[Node, None] = {}
        self._pinned: set[Node] = set()

    def __len__(self) -> int:
        return len(self._tree)

    @property
    def num_reclaimable(self) -> int:
        """Blocks that `reclaim` can give."""
        return len(self._idle)

    @property
    def num_cached(self) -> int:
        """Blocks that are kept without a reference, pinned ones too."""
        return len(self._idle) + len(self._pinned)

    def match(self, chain: TokenChain, limit: int, known: Sequence[Node] = ()) -> Match:
        """The most that the first ``limit`` tokens of ``chain`` share with computed blocks.

        Args:
            known: see `RadixTree.match`.
        """
        hit = self._tree.match(chain, limit, known)
        return hit if self._ttl_s == inf else self._fresh(hit)

    def hit(self, match: Match) -> None:
        """Note that a request begins with ``match``."""
        for node in match.nodes:
            node.hits += 1
        if match.partial is not None:
            match.partial.hits += 1

    def publish(
        self, chain: TokenChain, parent: Node | None, key: bytes, block: int, weight: float = 1.0
    ) -> Node:
        """Offer a held block, whose tokens ``key`` follow ``parent`` (None: they begin ``chain``).

        Args:
            weight: of the request that computed it, see `foreword.kv.eviction.weight`.

        Returns:
            The node of these tokens; that of another block, if one has them already.
        """
        parent = parent or self._tree.root(chain.root)
        shorter = parent.begun_by(key)
        node = self._tree.insert(parent, key, block)
        if weight > node.weight:
            node.weight = weight
        if parent.awaited:
            self._watches.came(parent, key)
        if self.journal is not None and node.block == block and len(key) == self._block_bytes:
            self.journal.append(NewBlock(chain.name(node.depth), block))
        if shorter is not None:  # the end of a sequence, of which this is the continuation
            self._eviction.demote(shorter)
        return node

    def publish_end(
        self, chain: TokenChain, parent: Node | None, key: bytes, block: int, weight: float = 1.0
    ) -> None:
        """The same for the block at a sequence's end, which is not full.

        Nobody else may hold it. It is not taken where another begins with the same tokens.
        """
        if (parent or self._tree.root(chain.root)).begins(key) is None:
            self.publish(chain, parent, key, block, weight)

    # Prompts in line.

    def watch(self, table: BlockTable, limit: int) -> Watch:
        """Keep an eye on what the first ``limit`` tokens of an empty table would find.

        Until `unwatch`, all other blocks are given up before those that they would find.
        """
        return self._watches.add(table, limit)

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch."""
        self._watches.remove(watch)

    def renewed(self) -> list[Watch]:
        """The watches that may find more or less than when this was last asked."""
        return self._watches.renew()

    # What the pool tells and asks.

    def hold(self, block: int) -> None:
        """A kept block is in use again."""
        node = self._known(block)
        node.idle_since_s = None
        self._idle.pop(node, None)
        self._pinned.discard(node)

    def drop(self, block: int) -> bool:
        """A block lost its last reference; return whether it is kept."""
        node = self._tree.node(block)
        if node is None:
            return False
        node.idle_since_s = self.now
        if node.pins:
            self._pinned.add(node)
        else:
            self._idle[node] = None
            self._eviction.add(node)
            self._eviction.compact(len(self._idle))
        return True

    def reclaim(self, count: int) -> list[int]:
        """Give up the least valuable blocks, and return them; there must be so many."""
        return [self._give_up(self._eviction.pop()) for _ in range(count)]

    def expired(self) -> list[int]:
        """Give up what is too old, and return it."""
        blocks: list[int] = []
        while self._idle and self._expired(oldest := next(iter(self._idle))):
            blocks.append(self._give_up(oldest))
        return blocks

    def clear(self) -> list[int]:
        """Give up everything that is neither held nor pinned, and return it."""
        return self.reclaim(len(self._idle))

    # Pins.

    def pin(self, nodes: Iterable[Node]) -> None:
        """Keep a path, from its first block on, until it is unpinned as often."""
        for node in nodes:
            node.pins += 1
            if node.pins == 1 and self._idle.pop(node, node) is None:
                self._pinned.add(node)

    def unpin(self, nodes: Iterable[Node]) -> None:
        """Undo a `pin` of the same nodes."""
        for node in reversed(list(nodes)):
            node.pins -= 1
            if node.pins == 0 and node in self._pinned:
                self._pinned.remove(node)
                self._idle[node] = None
                node.idle_since_s = self.now
                self._eviction.add(node)

    def _fresh(self, hit: Match) -> Match:
        """What of a match is not too old."""
        for index, node in enumerate(hit.nodes):
            if self._expired(node):
                return Match(hit.nodes[:index])
        if hit.partial is not None and self._expired(hit.partial):
            return hit.whole
        return hit

    def _known(self, block: int) -> Node:
        node = self._tree.node(block)
        if node is None or node.idle_since_s is None:
            raise ValueError(f"block {block} is free and has no contents to share")
        return node

    def _give_up(self, node: Node) -> int:
        parent = node.parent
        if node.awaited:
            self._watches.goes(node)
        self._tree.remove(node)
        del self._idle[node]
        node.idle_since_s = None
        if parent is not None:
            self._eviction.expose(parent)
        return node.block

    def _expired(self, node: Node) -> bool:
        since_s = node.idle_since_s
        return since_s is not None and not node.pins and self.now - since_s > self._ttl_s
