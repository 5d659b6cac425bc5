"""Who owns which block of the pool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from foreword.errors import ForewordError


class OutOfBlocksError(ForewordError):
    """No block is free or can be evicted."""


class BlockPool:
    """Reference counts over a fixed number of blocks.

    Every block is in one of three states, so that ``free + cached + referenced == total``:

    - *free*: nobody wants its contents;
    - *referenced*: one or more block tables hold it;
    - *cached*: no table holds it, but its contents are kept until the space is needed, least
      recently used first.

    Args:
        num_blocks: blocks in the pool, named ``0 … num_blocks-1``.
        on_evict: called with a cached block whose contents are about to be lost.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        self._on_evict = on_evict
        self._refs = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: block 0 goes first
        self._kept = bytearray(num_blocks)  # 1: becomes cached, not free, at its last release
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return len(self._refs)

    @property
    def num_free(self) -> int:
        """Blocks whose contents nobody wants."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks without a reference whose contents are kept."""
        return len(self._cached)

    @property
    def num_referenced(self) -> int:
        """Blocks that block tables hold."""
        return len(self._refs) - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give: free and cached ones."""
        return len(self._free) + len(self._cached)

    def references(self, block: int) -> int:
        """How many tables hold ``block``."""
        return self._refs[block]

    def allocate(self) -> int:
        """Take a block to write to; a cached one is evicted where none is free.

        Raises:
            OutOfBlocksError: every block is referenced.
        """
        if self._free:
            block = self._free.pop()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
            self._kept[block] = 0
            self._on_evict(block)
        else:
            raise OutOfBlocksError(f"all {self.num_blocks} blocks are in use")
        self._refs[block] = 1
        return block

    def acquire(self, block: int) -> None:
        """Add a reference to a block that is referenced or cached.

        Raises:
            ValueError: the block is free.
        """
        if self._refs[block] == 0:
            if block not in self._cached:
                raise ValueError(f"block {block} is free and has no contents to share")
            del self._cached[block]
        self._refs[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; the last one makes the block cached if it is kept, else free.

        Raises:
            ValueError: nobody holds the block (a double free).
        """
        if self._refs[block] == 0:
            raise ValueError(f"block {block} is released, but nobody holds it")
        self._refs[block] -= 1
        if self._refs[block] == 0:
            if self._kept[block]:
                self._cached[block] = None
            else:
                self._free.append(block)

    def keep(self, block: int) -> None:
        """Make a referenced block stay cached after its last release."""
        self._kept[block] = 1
