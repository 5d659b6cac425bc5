"""The pool and the prefix index of one engine, put together."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.cache import CacheConfig
from foreword.kv.pool import BlockPool
from foreword.kv.prefix import PrefixIndex


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

    Attributes:
        pool: who owns which block.
        prefixes: contents that can be found again; None without prefix caching.
    """

    def __init__(self, config: CacheConfig, root: bytes) -> None:
        self.block_size = config.block_size
        self.root = root
        self.prefixes = PrefixIndex() if config.enable_prefix_caching else None
        self.pool = BlockPool(config.num_blocks, on_evict=self._evict)

    @property
    def usage(self) -> KVUsage:
        """The pool's blocks by state."""
        pool = self.pool
        return KVUsage(pool.num_blocks, pool.num_free, pool.num_cached, pool.num_referenced)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.block_size)

    def _evict(self, block: int) -> None:
        if self.prefixes is not None:
            self.prefixes.forget(block)
