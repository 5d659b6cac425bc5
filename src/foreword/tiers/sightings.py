"""Which blocks were last seen in a tier: an answer at once, where asking might block."""

from __future__ import annotations

import threading
from collections.abc import Iterable

_MOST = 1 << 16  # blocks: a million tokens


class Sightings:
    """Digests of blocks that were in a tier when they were last written or read.

    A hint, since others write to a disk too: what was never seen may be there, and what was seen
    may have been deleted. Safe to call from any thread.
    """

    def __init__(self) -> None:
        self._seen: dict[bytes, None] = {}  # the longest unseen one first
        self._lock = threading.Lock()

    def note(self, digest: bytes, is_there: bool) -> None:
        """A block was found, or not."""
        with self._lock:
            self._seen.pop(digest, None)
            if is_there:
                self._seen[digest] = None
                if len(self._seen) > _MOST:
                    del self._seen[next(iter(self._seen))]

    def clear(self) -> None:
        """All tiers were emptied."""
        with self._lock:
            self._seen.clear()

    def num_leading(self, digests: Iterable[bytes]) -> int:
        """How many of consecutive blocks were seen, up to the first that was not."""
        count = 0
        for digest in digests:
            if digest not in self._seen:
                break
            count += 1
        return count
