"""Blocks in memory, beside the pool."""

from __future__ import annotations

import threading
from collections import OrderedDict

from foreword.kv.identity import BlockName


class MemoryTier:
    """The most recently used blocks, up to a limit. Safe to use from several threads."""

    name = "memory"

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._blocks: OrderedDict[bytes, tuple[BlockName, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Bytes of all contents."""
        return self._num_bytes

    def has(self, name: BlockName) -> bool:
        """Whether the block is there."""
        return name.digest in self._blocks

    def get(self, name: BlockName) -> bytes | None:
        """The block's contents; None where it is not there."""
        with self._lock:
            known, contents = self._blocks.get(name.digest, (None, b""))
            if known != name:
                return None
            self._blocks.move_to_end(name.digest)
            return contents

    def put(self, name: BlockName, contents: bytes) -> None:
        """Keep the block; the least recently used ones go."""
        with self._lock:
            if name.digest in self._blocks:
                self._blocks.move_to_end(name.digest)
                return
            self._blocks[name.digest] = name, contents
            self._num_bytes += len(contents)
            while self._num_bytes > self._limit_bytes:
                _, (_, oldest) = self._blocks.popitem(last=False)
                self._num_bytes -= len(oldest)

    def clear(self) -> None:
        """Drop every block."""
        with self._lock:
            self._blocks.clear()
            self._num_bytes = 0
