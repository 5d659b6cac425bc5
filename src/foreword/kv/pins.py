"""Prefixes that stay in the pool for a while, whatever else is computed."""

from __future__ import annotations

from typing import NamedTuple

from foreword.errors import InvalidRequestError
from foreword.kv.identity import TokenChain
from foreword.kv.prefix import PrefixCache
from foreword.kv.radix import Node

MAX_SHARE = 0.5  # of the pool may be pinned: the rest is for those who ask


class Pin(NamedTuple):
    """A pinned prefix.

    Attributes:
        num_tokens: whole blocks of it.
        until_s: when it ends, on the scheduler's clock.
    """

    num_tokens: int
    until_s: float
    nodes: tuple[Node, ...]


class PinBoard:
    """The pins of one cache, by name.

    Args:
        num_blocks: of the pool.
    """

    def __init__(self, prefixes: PrefixCache, num_blocks: int, block_size: int) -> None:
        self._prefixes = prefixes
        self._num_blocks = num_blocks
        self._block_size = block_size
        self.pins: dict[str, Pin] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks that are pinned, each counted once."""
        return len({node.block for pin in self.pins.values() for node in pin.nodes})

    def add(self, name: str, chain: TokenChain, num_tokens: int, until_s: float) -> Pin:
        """Pin what the cache has of the first ``num_tokens`` of ``chain``, in whole blocks.

        Raises:
            InvalidRequestError: too much of the pool would be pinned.
        """
        nodes = self._prefixes.match(chain, num_tokens).nodes
        new = sum(not node.pins for node in nodes)
        limit = int(self._num_blocks * MAX_SHARE)
        if self.num_blocks + new > limit:
            raise InvalidRequestError(
                f"{new} blocks more would make {self.num_blocks + new} pinned ones, and "
                f"{limit} of the pool's {self._num_blocks} may be pinned"
            )
        self._prefixes.pin(nodes)
        self.pins[name] = pin = Pin(len(nodes) * self._block_size, until_s, nodes)
        return pin

    def remove(self, name: str) -> bool:
        """Unpin; return whether there was such a pin."""
        pin = self.pins.pop(name, None)
        if pin is not None:
            self._prefixes.unpin(pin.nodes)
        return pin is not None

    def give_way(self) -> bool:
        """Undo the pin that would end first; return whether there was one."""
        first = min(self.pins, key=lambda name: self.pins[name].until_s, default=None)
        return first is not None and self.remove(first)

    def expire(self, now: float) -> None:
        """Unpin what has had its time."""
        for name in [name for name, pin in self.pins.items() if pin.until_s <= now]:
            self.remove(name)
