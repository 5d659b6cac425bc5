"""Prompts in line, each at the last block that it would find in the pool at the moment."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from foreword.kv.radix import Node, RadixTree

if TYPE_CHECKING:
    from foreword.kv.table import BlockTable

_MOST_RENEWED = 64  # at once: many may lack the same block


class Watch:
    """A prompt in line.

    Attributes:
        table: of its sequence, whose tokens do not grow meanwhile.
        limit: how many of them may come from the pool.
        num_tokens: how many would, when somebody last looked.
        node: the last whole block of these, or the root.
        key: the tokens of the block that it lacks next; empty where none may come.
    """

    __slots__ = ("key", "limit", "node", "num_tokens", "table")

    def __init__(self, table: BlockTable, limit: int, root: Node) -> None:
        self.table = table
        self.limit = limit
        self.num_tokens = 0
        self.node = root
        self.key = b""


class WatchList:
    """Keeps watches where their prompts stand in the tree, as blocks come and go.

    A node knows who stands at it (`Node.awaited`): so it is worth keeping, and who lacks a block is
    known when it comes. A block costs a look at its parent, and each prompt in line the look-up of
    the blocks that are new to it.

    Args:
        block_size: tokens of a block.
        left: called with a node at which nobody stands any more.
    """

    def __init__(self, tree: RadixTree, block_size: int, left: Callable[[Node], None]) -> None:
        self._tree = tree
        self._block_size = block_size
        self._left = left
        self._stale: dict[Watch, None] = {}

    def add(self, table: BlockTable, limit: int) -> Watch:
        """Watch what a prompt would find."""
        watch = Watch(table, limit, self._tree.root(table.chain.root))
        self._place(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        """Watch a prompt no longer."""
        self._stale.pop(watch, None)
        self._leave(watch.node, watch.key, watch)

    def came(self, parent: Node, key: bytes) -> None:
        """A block is new in the tree."""
        self._stale.update((parent.awaited or {}).get(key, {}))

    def goes(self, node: Node) -> None:
        """A block is about to leave the tree: who stands at it steps back."""
        parent, groups = node.parent, node.awaited or {}
        assert parent is not None
        node.awaited = None
        for watch in [watch for group in groups.values() for watch in group]:
            watch.node, watch.key = parent, node.key
            _at(parent, node.key)[watch] = None
            self._stale[watch] = None

    def renew(self) -> list[Watch]:
        """Look again for those whose blocks came or went; return them.

        Where there are very many, the rest come up the next time.
        """
        renewed = list(islice(self._stale, _MOST_RENEWED))
        for watch in renewed:
            del self._stale[watch]
            node, key = watch.node, watch.key
            self._place(watch)
            if (watch.node, watch.key) != (node, key):
                self._leave(node, key, watch)
        return renewed

    def _place(self, watch: Watch) -> None:
        chain, size = watch.table.chain, self._block_size
        hit = watch.table.match(watch.limit)
        lacks = (len(hit.nodes) + 1) * size <= watch.limit
        watch.node = hit.nodes[-1] if hit.nodes else self._tree.root(chain.root)
        watch.key = chain.key(len(hit.nodes)) if lacks else b""
        watch.num_tokens = hit.num_tokens(size)
        _at(watch.node, watch.key)[watch] = None

    def _leave(self, node: Node, key: bytes, watch: Watch) -> None:
        awaited = node.awaited
        assert awaited is not None
        del awaited[key][watch]
        if not awaited[key]:
            del awaited[key]
        if not awaited:
            node.awaited = None
            self._tree.prune(node)
            self._left(node)


def _at(node: Node, key: bytes) -> dict[Watch, None]:
    """Who stands at ``node`` and lacks the block ``key``."""
    if node.awaited is None:
        node.awaited = {}
    return node.awaited.setdefault(key, {})
