"""The blocks of one sequence."""

from __future__ import annotations

from foreword.kv.cache import KVCache
from foreword.kv.eviction import weight
from foreword.kv.radix import Match, Node
from foreword.kv.watch import Watch


class BlockTable:
    """Maps the positions of one sequence to blocks of the pool.

    Position ``p`` is slot ``p % block_size`` of ``blocks[p // block_size]``. The table grows on
    demand, shares blocks with the tables that it is forked to, and copies a shared block before
    it is written to.

    Args:
        cache: where the blocks come from.
        token_ids: the sequence's tokens; the list may grow at the end.
        cache_salt: who else may share the blocks: sequences with the same salt.
        priority: of the request, see `foreword.core.request.Urgency`: how long blocks are kept.

    Attributes:
        blocks: indices in the pool, in the order of positions.
        computed: leading positions whose contents are known to be right.
        writable: positions below it need no block before they are written to, if they are not
            computed yet.
    """

    __slots__ = (
        "_cache",
        "_found",
        "_published",
        "_tip",
        "_weight",
        "blocks",
        "chain",
        "computed",
        "writable",
    )

    def __init__(
        self, cache: KVCache, token_ids: list[int], cache_salt: str = "", priority: int = 0
    ) -> None:
        self._cache = cache
        self._weight = weight(priority)
        self.chain = cache.chain(token_ids, cache_salt)
        self.blocks: list[int] = []
        self.computed = 0
        self.writable = 0
        self._found: tuple[Node, ...] = ()  # by the latest match
        self._published = 0  # leading blocks that others can find
        self._tip: Node | None = None  # the last one of them

    def match(self, limit: int) -> Match:
        """What this sequence can begin with; asked again, only what is new is looked up.

        Args:
            limit: tokens that may come from the cache.
        """
        prefixes = self._cache.prefixes
        if prefixes is None:
            return Match()
        hit = prefixes.match(self.chain, limit, self._found)
        self._found = hit.nodes
        return hit

    def watch(self, limit: int) -> Watch | None:
        """Have the cache watch what `match` would find, until `KVCache.unwatch`.

        See `PrefixCache.watch`; None without prefix caching.
        """
        prefixes = self._cache.prefixes
        return None if prefixes is None else prefixes.watch(self, limit)

    def shortfall(self, hit: Match, stop: int) -> int:
        """Blocks that `start` would take from the available ones.

        Pinned blocks are not among those, whether they are held or not.
        """
        pool = self._cache.pool
        unheld = sum(pool.references(node.block) == 0 and not node.pins for node in hit.nodes)
        return self._cache.blocks_for(stop) - len(hit.nodes) + unheld

    def start(self, hit: Match, stop: int) -> list[tuple[int, int]]:
        """Fill an empty table: ``hit`` from the cache, then new blocks up to position ``stop``.

        Returns:
            ``(source, destination)`` where a part of a block has to be copied, before anything is
            computed and in this order: the source may be a block that is taken for something else.

        Raises:
            OutOfBlocksError: fewer blocks are available than `shortfall` says.
        """
        pool, first = self._cache.pool, len(hit.nodes)
        for node in hit.nodes:
            pool.acquire(node.block)
            node.weight = max(node.weight, self._weight)
            self.blocks.append(node.block)
        self.computed = first * self._cache.block_size  # the copy is not made yet
        self._published = first
        self._tip = hit.nodes[-1] if hit.nodes else None
        source = hit.partial.block if hit.partial is not None else None
        self.blocks += pool.allocate(self._cache.blocks_for(stop) - first)
        self.writable = len(self.blocks) * self._cache.block_size
        return [] if source is None else [(source, self.blocks[first])]

    @property
    def end(self) -> tuple[Node | None, bytes]:
        """The last of its blocks that others can find, and the tokens of the next one."""
        return self._tip, self.chain.key(self._published)

    def needs_block(self, position: int) -> bool:
        """Whether writing to ``position`` takes a block: the table ends there, or it is shared."""
        if position < self.writable:
            return False
        blocks, index = self.blocks, position // self._cache.block_size
        if index == len(blocks) or self._cache.pool.references(blocks[index]) > 1:
            return True
        self.writable = (index + 1) * self._cache.block_size  # the others have left it
        return False

    def extend(self, position: int) -> list[tuple[int, int]]:
        """Take the block that `needs_block` speaks of.

        Returns:
            ``(source, destination)`` where the contents of a shared block have to be copied.

        Raises:
            OutOfBlocksError: none is available.
        """
        pool, index = self._cache.pool, position // self._cache.block_size
        (block,) = pool.allocate(1)
        self.writable = (index + 1) * self._cache.block_size
        if index == len(self.blocks):
            self.blocks.append(block)
            return []
        shared, self.blocks[index] = self.blocks[index], block
        self.computed = index * self._cache.block_size  # until the copy is made
        pool.release(shared)
        return [(shared, block)]

    def covering(self, stop: int) -> list[int]:
        """Blocks of positions ``0 … stop-1``; the table's own list where it holds no more."""
        count = self._cache.blocks_for(stop)
        return self.blocks if count == len(self.blocks) else self.blocks[:count]

    def publish(self, computed: int) -> None:
        """Let other sequences find the full blocks among the first ``computed`` positions.

        Where no block has become full since, setting ``computed`` is enough.

        Where another block with the same contents can be found already, the table takes that one
        and gives its own back, so that equal contents are held once.
        """
        self.computed = computed
        prefixes, pool = self._cache.prefixes, self._cache.pool
        if prefixes is None:
            return
        chain, tip, stop = self.chain, self._tip, computed // self._cache.block_size
        for index in range(self._published, stop):
            own = self.blocks[index]
            tip = prefixes.publish(chain, tip, chain.key(index), own, self._weight)
            if tip.block != own:
                pool.acquire(tip.block)
                self.blocks[index] = tip.block
                pool.release(own)
        self._tip, self._published = tip, stop

    def fork(self, token_ids: list[int]) -> BlockTable:
        """A table over the same blocks for ``token_ids``, which begins with the same tokens."""
        other = BlockTable(self._cache, token_ids)
        other._weight = self._weight
        other.chain = self.chain.fork(token_ids)
        other.blocks = list(self.blocks)
        self.writable = 0  # both share the last block
        other.computed = self.computed
        other._published = self._published
        other._tip = self._tip
        for block in other.blocks:
            self._cache.pool.acquire(block)
        return other

    def release(self) -> None:
        """Give all blocks back, the last one first: a prefix outlives what builds on it."""
        self._publish_end()
        blocks, self.blocks = self.blocks, []
        for block in reversed(blocks):
            self._cache.pool.release(block)
        self.computed = self.writable = self._published = 0

    def _publish_end(self) -> None:
        """Let the block that is not full be found too, now that nobody writes to it any more."""
        prefixes, start = self._cache.prefixes, self._published * self._cache.block_size
        if prefixes is None or self.computed == start:
            return
        block = self.blocks[self._published]
        if self._cache.pool.references(block) == 1:
            key = self.chain.span(start, self.computed)
            prefixes.publish_end(self.chain, self._tip, key, block, self._weight)
