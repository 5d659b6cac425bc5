"""The blocks of one sequence."""

from __future__ import annotations

from foreword.kv.cache import KVCache
from foreword.kv.identity import TokenChain
from foreword.kv.prefix import CachedBlock


class BlockTable:
    """Maps the positions of one sequence to blocks of the pool.

    Position ``p`` is slot ``p % block_size`` of ``blocks[p // block_size]``. The table grows on
    demand, shares blocks with the tables that it is forked to, and copies a shared block before
    it is written to.

    Args:
        cache: where the blocks come from.
        token_ids: the sequence's tokens; the list may grow at the end.

    Attributes:
        blocks: indices in the pool, in the order of positions.
    """

    __slots__ = ("_cache", "_chain", "_published", "_tip", "blocks")

    def __init__(self, cache: KVCache, token_ids: list[int]) -> None:
        self._cache = cache
        self._chain = TokenChain(cache.root, token_ids, cache.block_size)
        self.blocks: list[int] = []
        self._published = 0  # leading blocks that have been offered to the index
        self._tip: CachedBlock | None = None  # the index's entry of the last one of them

    def match(self, limit: int) -> list[CachedBlock]:
        """Cached blocks that this sequence can begin with.

        Args:
            limit: tokens that may come from the cache.
        """
        prefixes = self._cache.prefixes
        if prefixes is None:
            return []
        return prefixes.match(self._chain, limit // self._cache.block_size)

    def shortfall(self, hit: list[CachedBlock], stop: int) -> int:
        """Blocks that `start` would take from the available ones."""
        pool = self._cache.pool
        unheld = sum(pool.references(node.block) == 0 for node in hit)
        return self._cache.blocks_for(stop) - len(hit) + unheld

    def start(self, hit: list[CachedBlock], stop: int) -> None:
        """Fill an empty table: ``hit`` from the cache, then new blocks up to position ``stop``.

        Raises:
            OutOfBlocksError: fewer blocks are available than `shortfall` says.
        """
        pool = self._cache.pool
        for node in hit:
            pool.acquire(node.block)
            self.blocks.append(node.block)
        self._published = len(hit)
        self._tip = hit[-1] if hit else None
        for _ in range(self._cache.blocks_for(stop) - len(hit)):
            self.blocks.append(pool.allocate())

    def needs_block(self, position: int) -> bool:
        """Whether writing to ``position`` takes a block: the table ends there, or it is shared."""
        blocks, index = self.blocks, position // self._cache.block_size
        return index == len(blocks) or self._cache.pool.references(blocks[index]) > 1

    def extend(self, position: int) -> list[tuple[int, int]]:
        """Take the block that `needs_block` speaks of.

        Returns:
            ``(source, destination)`` where the contents of a shared block have to be copied.

        Raises:
            OutOfBlocksError: none is available.
        """
        pool, index = self._cache.pool, position // self._cache.block_size
        block = pool.allocate()
        if index == len(self.blocks):
            self.blocks.append(block)
            return []
        shared, self.blocks[index] = self.blocks[index], block
        pool.release(shared)
        return [(shared, block)]

    def covering(self, stop: int) -> list[int]:
        """Blocks of positions ``0 … stop-1``; the table's own list where it holds no more."""
        count = self._cache.blocks_for(stop)
        return self.blocks if count == len(self.blocks) else self.blocks[:count]

    def publish(self, computed: int) -> None:
        """Let other sequences find the full blocks among the first ``computed`` positions.

        Where another block with the same contents is in the index already, the table takes that
        one and gives its own back, so that equal contents are held once.
        """
        prefixes, pool = self._cache.prefixes, self._cache.pool
        num_full = computed // self._cache.block_size
        if prefixes is None or num_full <= self._published:
            return
        for index in range(self._published, num_full):
            if index > 0 and self._tip is None:
                return  # an earlier block lost its place to a collision
            own = self.blocks[index]
            self._tip = prefixes.insert(self._chain, index, self._tip, own)
            self._published += 1
            if self._tip is None:
                return
            if self._tip.block == own:
                pool.keep(own)
            else:
                pool.acquire(self._tip.block)
                self.blocks[index] = self._tip.block
                pool.release(own)

    def fork(self, token_ids: list[int]) -> BlockTable:
        """A table over the same blocks for ``token_ids``, which begins with the same tokens."""
        other = BlockTable(self._cache, token_ids)
        other._chain = self._chain.fork(token_ids)
        other.blocks = list(self.blocks)
        other._published = self._published
        other._tip = self._tip
        for block in other.blocks:
            self._cache.pool.acquire(block)
        return other

    def release(self) -> None:
        """Give all blocks back, the last one first: a prefix outlives what builds on it."""
        blocks, self.blocks = self.blocks, []
        for block in reversed(blocks):
            self._cache.pool.release(block)
