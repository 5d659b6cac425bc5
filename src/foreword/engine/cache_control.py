"""What operators may do with the prefix cache: look, pin, clear."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from foreword.errors import InvalidRequestError
from foreword.kv import KVCache, KVUsage
from foreword.kv.pins import Pin

if TYPE_CHECKING:
    from foreword.tiers.store import BlockStore


@dataclass(frozen=True, slots=True)
class CacheState:
    """The prefix cache as it stands.

    Attributes:
        pinned: blocks that pins hold.
        pins: by name.
        tier_bytes: bytes in each tier, by its name.
    """

    blocks: KVUsage
    pinned: int
    pins: dict[str, Pin]
    tier_bytes: dict[str, int]


class Cleared(NamedTuple):
    """What clearing did.

    Attributes:
        blocks: of the pool, that are free by it.
        tiers: what is done when the tiers are empty, see `BlockStore.clear`; None without any.
    """

    blocks: int
    tiers: Future[None] | None


class CacheControl:
    """The operators' side of a prefix cache. To be called between steps only."""

    def __init__(self, cache: KVCache, store: BlockStore | None) -> None:
        self._cache = cache
        self._store = store
        self._names = (f"pin-{number}" for number in itertools.count(1))

    def state(self) -> CacheState:
        """Look."""
        pins = self._cache.pins
        tiers = self._store.tiers if self._store else ()
        return CacheState(
            blocks=self._cache.usage,
            pinned=pins.num_blocks if pins else 0,
            pins=dict(pins.pins) if pins else {},
            tier_bytes={tier.name: tier.num_bytes for tier in tiers},
        )

    def pin(self, token_ids: Sequence[int], cache_salt: str, until_s: float) -> tuple[str, Pin]:
        """Pin what is computed of a prompt, and return the pin with its name.

        Args:
            until_s: when the pin ends, on the engine's clock.

        Raises:
            InvalidRequestError: prefix caching is off, or too much would be pinned.
        """
        if self._cache.pins is None:
            raise InvalidRequestError("prefix caching is off: nothing can be pinned")
        chain = self._cache.chain(list(token_ids), cache_salt)
        name = next(self._names)
        return name, self._cache.pins.add(name, chain, len(token_ids), until_s)

    def unpin(self, name: str) -> bool:
        """Undo a pin; return whether there was one of that name."""
        return self._cache.pins is not None and self._cache.pins.remove(name)

    def clear(self) -> Cleared:
        """Forget whatever nobody holds or has pinned, in all tiers."""
        tiers = self._store.clear() if self._store else None
        return Cleared(self._cache.clear(), tiers)
