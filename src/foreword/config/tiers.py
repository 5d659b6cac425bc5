"""Where KV blocks go beside the pool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreword.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Tiers below the pool; without any of them, what leaves the pool is lost.

    Attributes:
        memory_bytes: memory for blocks; 0: none.
        disk_path: folder for blocks; None: none.
        disk_bytes: how much of the disk they may take.
    """

    memory_bytes: int = 0
    disk_path: Path | None = None
    disk_bytes: int = 10 << 30

    def __post_init__(self) -> None:
        if self.memory_bytes < 0:
            raise ConfigError("kv_memory_bytes", f"must not be negative, not {self.memory_bytes}")
        if self.disk_bytes < 1:
            raise ConfigError("kv_disk_bytes", f"must be at least 1, not {self.disk_bytes}")

    @property
    def is_empty(self) -> bool:
        """Whether there is no tier."""
        return not self.memory_bytes and self.disk_path is None
