"""Finding computed blocks again by what they hold."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.kv.identity import TokenChain


@dataclass(frozen=True, slots=True, eq=False)
class CachedBlock:
    """A full block that any sequence with the same prefix may share.

    Attributes:
        digest: its identity.
        token_ids: the tokens that it holds.
        parent: the block before it; None at the start of a sequence.
        block: its index in the pool.
    """

    digest: bytes
    token_ids: tuple[int, ...]
    parent: CachedBlock | None
    block: int


class PrefixIndex:
    """Full blocks by identity.

    A match verifies the tokens and the parent and not only the digest, so a collision is a miss.
    Whoever holds a block of the index holds its parent too and releases it later, so the pool
    evicts children before parents and a chain never has a hole.
    """

    def __init__(self) -> None:
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def match(self, chain: TokenChain, limit: int) -> list[CachedBlock]:
        """The longest run of cached blocks that begins ``chain``, at most ``limit`` of them."""
        found: list[CachedBlock] = []
        parent: CachedBlock | None = None
        for index in range(limit):
            node = self._by_digest.get(chain.digest(index))
            if node is None or node.parent is not parent or node.token_ids != chain.tokens(index):
                break
            found.append(node)
            parent = node
        return found

    def insert(
        self, chain: TokenChain, index: int, parent: CachedBlock | None, block: int
    ) -> CachedBlock | None:
        """Offer ``block``, which holds block ``index`` of ``chain`` and follows ``parent``.

        Returns:
            The entry with these contents: a new one, or the one that was there already (with
            another ``block``). None where another content has the same digest.
        """
        digest, token_ids = chain.digest(index), chain.tokens(index)
        node = self._by_digest.get(digest)
        if node is None:
            node = CachedBlock(digest, token_ids, parent, block)
            self._by_digest[digest] = node
            self._by_block[block] = node
            return node
        same = node.parent is parent and node.token_ids == token_ids
        return node if same else None

    def forget(self, block: int) -> None:
        """Drop the entry of ``block``, whose contents are lost."""
        del self._by_digest[self._by_block.pop(block).digest]
