"""The radix tree of computed blocks: what is in the pool, found by its tokens.

An edge is the tokens of one block, so that a path is a prompt; siblings may begin with the same
tokens. Only a leaf may hold less than a whole block: the end of a sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from foreword.kv.identity import TOKEN_BYTES, TokenChain

if TYPE_CHECKING:
    from foreword.kv.watch import Watch


class Node:
    """A block of the pool whose contents are known.

    Attributes:
        key: its tokens, see `foreword.kv.identity.token_key`.
        block: its index in the pool; -1 for a root.
        parent: the block before it; None for a root.
        children: the blocks that follow it, by their tokens; `attach` and `detach` change it.
        depth: how many blocks come before it; -1 for a root.
        hits: how many requests have begun with it, beside the one that computed it.
        pins: how many pins hold it.
        awaited: prompts in line that find no more than what ends here, by the tokens of the block
            that they lack; None where there are none.
        weight: how much its use counts: as much as for the most urgent of those requests.
        value: what keeping it is worth, see `foreword.kv.eviction`.
        entry: the number under which that is in the eviction's heap.
        idle_since_s: when the last sequence gave it up; None while one holds it.
    """

    __slots__ = (
        "_keys",
        "awaited",
        "block",
        "children",
        "depth",
        "entry",
        "hits",
        "idle_since_s",
        "key",
        "parent",
        "pins",
        "value",
        "weight",
    )

    def __init__(self, key: bytes, parent: Node | None, block: int) -> None:
        self.key = key
        self.block = block
        self.parent = parent
        self.depth: int = -1 if parent is None else parent.depth + 1
        self.hits = 0
        self.pins = 0
        self.awaited: dict[bytes, dict[Watch, None]] | None = None
        self.weight = 0.0
        self.value = 0.0
        self.entry = -1
        self.idle_since_s: float | None = None
        self._keys: list[bytes] = []  # sorted: who stands next to a text shares most with it
        self.children: list[Node] = []

    def child(self, key: bytes) -> Node | None:
        """The child with exactly these tokens."""
        keys = self._keys
        if not keys:
            return None
        at = bisect_left(keys, key)
        return self.children[at] if at < len(keys) and keys[at] == key else None

    def closest(self, key: bytes) -> tuple[Node | None, int]:
        """The child that shares most leading tokens with ``key``, and how many."""
        at = bisect_left(self._keys, key)
        best, most = None, 0
        for node in self.children[max(0, at - 1) : at + 1]:
            shared = common_tokens(node.key, key)
            if shared > most:
                best, most = node, shared
        return best, most

    def begins(self, key: bytes) -> Node | None:
        """The child, if there is one, whose tokens are ``key`` or begin with it."""
        at = bisect_left(self._keys, key)
        found = at < len(self._keys) and self._keys[at].startswith(key)
        return self.children[at] if found else None

    def begun_by(self, key: bytes) -> Node | None:
        """The child, if there is one, whose fewer tokens ``key`` begins with."""
        if not self._keys:
            return None
        at = bisect_left(self._keys, key)
        found = at > 0 and key.startswith(self._keys[at - 1])
        return self.children[at - 1] if found else None

    def attach(self, child: Node) -> None:
        """Add a child whose tokens no other has."""
        at = bisect_left(self._keys, child.key) if self._keys else 0
        self._keys.insert(at, child.key)
        self.children.insert(at, child)

    def detach(self, child: Node) -> None:
        """Take a child out."""
        at = bisect_left(self._keys, child.key) if len(self._keys) > 1 else 0
        del self._keys[at], self.children[at]


def common_tokens(one: bytes, other: bytes) -> int:
    """How many leading tokens two keys share."""
    size = min(len(one), len(other))
    differing = int.from_bytes(one[:size], "big") ^ int.from_bytes(other[:size], "big")
    return (size * 8 - differing.bit_length()) // (8 * TOKEN_BYTES)


class Match(NamedTuple):
    """How much of a sequence is in the pool.

    Attributes:
        nodes: whole blocks, first to last.
        partial: a block of whose tokens the first ``num_partial`` come next; None if none do.
        num_partial: fewer than a block has.
    """

    nodes: tuple[Node, ...] = ()
    partial: Node | None = None
    num_partial: int = 0

    @property
    def whole(self) -> Match:
        """Its whole blocks alone."""
        return Match(self.nodes)

    def num_tokens(self, block_size: int) -> int:
        """Tokens that need not be computed."""
        return len(self.nodes) * block_size + self.num_partial


class RadixTree:
    """Computed blocks by tokens, a root for each root digest (see `foreword.kv.identity.salted`).

    What a match finds has these very tokens on its whole path: nothing rests on a hash. Whoever
    holds a block holds those before it, and releases them later.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._roots: dict[bytes, Node] = {}
        self._by_block: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def node(self, block: int) -> Node | None:
        """What is known of a block of the pool."""
        return self._by_block.get(block)

    def match(self, chain: TokenChain, limit: int, known: Sequence[Node] = ()) -> Match:
        """The most that the first ``limit`` tokens of ``chain`` share with what is here.

        Args:
            known: what was found for it before. It is not looked up again, as far as it is still
                here: of a path, the last nodes go first.
        """
        num_whole = limit // self._block_size
        nodes = list(known[:num_whole])
        while nodes and self.node(nodes[-1].block) is not nodes[-1]:
            nodes.pop()
        at = nodes[-1] if nodes else self._roots.get(chain.root)
        if at is None:
            return Match()
        for index in range(len(nodes), num_whole):
            child = at.child(chain.key(index))
            if child is None:
                break
            nodes.append(child)
            at = child
        start = len(nodes) * self._block_size
        rest = chain.span(start, min(limit, start + self._block_size))
        return Match(tuple(nodes), *at.closest(rest))

    def root(self, digest: bytes) -> Node:
        """The root of all chains that start from ``digest``; made if it is not there."""
        root = self._roots.get(digest)
        if root is None:
            root = self._roots[digest] = Node(digest, None, -1)
        return root

    def insert(self, parent: Node, key: bytes, block: int) -> Node:
        """Add ``block``, whose tokens ``key`` follow ``parent``.

        Returns:
            The node of these tokens: a new one, or the one that was there, with another block.
        """
        node = parent.child(key)
        if node is None:
            node = Node(key, parent, block)
            parent.attach(node)
            self._by_block[block] = node
        return node

    def remove(self, node: Node) -> None:
        """Drop a leaf, and the root with the last one."""
        parent = node.parent
        assert not node.children
        assert parent is not None
        parent.detach(node)
        del self._by_block[node.block]
        self.prune(parent)

    def prune(self, node: Node) -> None:
        """Drop a root that nothing follows and where nobody waits; leave other nodes."""
        if node.parent is None and not node.children and node.awaited is None:
            self._roots.pop(node.key, None)
