"""The pool and the prefix cache of one engine, put together."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.cache import CacheConfig
from foreword.kv.eviction import recompute_cost
from foreword.kv.identity import TokenChain, salted
from foreword.kv.pins import PinBoard
from foreword.kv.pool import BlockPool
from foreword.kv.prefix import PrefixCache
from foreword.kv.radix import Match
from foreword.kv.watch import Watch


@dataclass(frozen=True, slots=True)
class KVUsage:
    """How many blocks are in which state; the three add up to ``total``."""

    total: int
    free: int
    cached: int
    referenced: int


class KVCache:
    """Blocks, and what is known about their contents.

    Args:
        config: sizes, and whether contents are kept for reuse.
        root: what all blocks have in common, see `foreword.kv.identity.root_digest`.
        context_cost: what a position of context adds to the work of a token, relative to the work
            that takes no context.

    Attributes:
        pool: who owns which block.
        prefixes: contents that can be found again; None without prefix caching.
        pins: those that stay; None without prefix caching.
    """

    def __init__(self, config: CacheConfig, root: bytes, context_cost: float = 0.0) -> None:
        self.block_size = config.block_size
        self.root = root
        self.prefixes: PrefixCache | None = None
        self.pins: PinBoard | None = None
        if config.enable_prefix_caching:
            block_cost = context_cost * config.block_size
            self.prefixes = PrefixCache(
                config.block_size,
                cost=lambda depth: recompute_cost(depth * block_cost),
                ttl_s=config.prefix_cache_ttl_s,
            )
            self.pins = PinBoard(self.prefixes, config.num_blocks, config.block_size)
        self.pool = BlockPool(config.num_blocks, self.prefixes)

    @property
    def usage(self) -> KVUsage:
        """The pool's blocks by state."""
        pool = self.pool
        return KVUsage(pool.num_blocks, pool.num_free, pool.num_cached, pool.num_referenced)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.block_size)

    def chain(self, token_ids: list[int], cache_salt: str) -> TokenChain:
        """A list of tokens as the blocks that requests with ``cache_salt`` share."""
        return TokenChain(salted(self.root, cache_salt), token_ids, self.block_size)

    def count_hit(self, match: Match) -> None:
        """Note that a request begins with ``match``: its blocks are worth more from now on."""
        if self.prefixes is not None:
            self.prefixes.hit(match)

    def unwatch(self, watch: Watch) -> None:
        """See `BlockTable.watch`."""
        if self.prefixes is not None:
            self.prefixes.unwatch(watch)

    def renewed(self) -> list[Watch]:
        """See `PrefixCache.renewed`."""
        return [] if self.prefixes is None else self.prefixes.renewed()

    def tick(self, now: float) -> None:
        """Tell the time; what is too old goes."""
        if self.prefixes is not None and self.pins is not None:
            self.prefixes.now = now
            self.pins.expire(now)
            self.pool.free(self.prefixes.expired())

    def pins_give_way(self) -> bool:
        """Undo the pin that would end first; return whether there was one."""
        return self.pins is not None and self.pins.give_way()

    def clear(self) -> int:
        """Forget what is neither held nor pinned; return how many blocks are free by that."""
        blocks = self.prefixes.clear() if self.prefixes is not None else []
        self.pool.free(blocks)
        return len(blocks)
