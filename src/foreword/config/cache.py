"""How the KV cache is laid out."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The block pool.

    Attributes:
        block_size: tokens in a block: a multiple of 16, the lanes of a vector.
        num_blocks: blocks in the pool.
        enable_prefix_caching: whether blocks of finished sequences are kept and reused by prompts
            that begin with the same tokens.
    """

    block_size: int = 16
    num_blocks: int
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.block_size < 16 or self.block_size % 16:
            raise ConfigError("block_size", f"must be a multiple of 16, not {self.block_size}")
        if self.num_blocks < 1:
            raise ConfigError("num_blocks", f"must be at least 1, not {self.num_blocks}")
