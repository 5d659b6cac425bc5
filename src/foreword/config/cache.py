"""How the KV cache is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from foreword.errors import ConfigError

KV_CACHE_DTYPES = ("float32", "float16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The block pool.

    Attributes:
        block_size: tokens in a block: a multiple of 16, the lanes of a vector.
        num_blocks: blocks in the pool.
        kv_cache_dtype: what keys and values are kept as: one of `KV_CACHE_DTYPES`.
        enable_prefix_caching: whether blocks of finished sequences are kept and reused by prompts
            that begin with the same tokens.
        prefix_cache_ttl_s: a block that nobody used for so long is forgotten.
    """

    block_size: int = 16
    num_blocks: int
    kv_cache_dtype: str = "float32"
    enable_prefix_caching: bool = True
    prefix_cache_ttl_s: float = inf

    def __post_init__(self) -> None:
        if self.block_size < 16 or self.block_size % 16:
            raise ConfigError("block_size", f"must be a multiple of 16, not {self.block_size}")
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            raise ConfigError(
                "kv_cache_dtype",
                f"must be one of {', '.join(KV_CACHE_DTYPES)}, not {self.kv_cache_dtype!r}",
            )
        ttl_s = self.prefix_cache_ttl_s
        if not ttl_s > 0:
            raise ConfigError("prefix_cache_ttl_s", f"must be over 0, not {ttl_s}")
        if self.num_blocks < 1:
            raise ConfigError("num_blocks", f"must be at least 1, not {self.num_blocks}")
