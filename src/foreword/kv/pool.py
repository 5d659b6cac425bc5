"""Who owns which block of the pool."""

from __future__ import annotations

from typing import Protocol

from foreword.errors import ForewordError


class OutOfBlocksError(ForewordError):
    """No block is free or can be given up."""


class Contents(Protocol):
    """Who decides what becomes of blocks that nobody holds."""

    @property
    def num_cached(self) -> int:
        """Blocks that are kept without a reference."""
        ...

    @property
    def num_reclaimable(self) -> int:
        """How many of them `reclaim` can give."""
        ...

    def hold(self, block: int) -> None:
        """A kept block is in use again; a `ValueError` if it is not kept."""
        ...

    def drop(self, block: int) -> bool:
        """A block lost its last reference; return whether it is kept."""
        ...

    def reclaim(self, count: int) -> list[int]:
        """Give up so many kept blocks and return them; there must be so many."""
        ...


class BlockPool:
    """Reference counts over a fixed number of blocks.

    Every block is in one of three states, so that ``free + cached + referenced == total``:

    - *free*: nobody wants its contents;
    - *referenced*: one or more block tables hold it;
    - *cached*: no table holds it, but its contents are kept until the space is needed.

    Args:
        num_blocks: blocks in the pool, named ``0 … num_blocks-1``.
        contents: what keeps contents; None: nothing does.
    """

    def __init__(self, num_blocks: int, contents: Contents | None = None) -> None:
        self._contents = _Nothing() if contents is None else contents
        self._refs = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: block 0 goes first

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
        return self._contents.num_cached

    @property
    def num_referenced(self) -> int:
        """Blocks that block tables hold."""
        return len(self._refs) - len(self._free) - self.num_cached

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give."""
        return len(self._free) + self._contents.num_reclaimable

    def references(self, block: int) -> int:
        """How many tables hold ``block``."""
        return self._refs[block]

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` blocks to write to; cached ones are given up where too few are free.

        Raises:
            OutOfBlocksError: too many blocks are referenced or pinned; nothing is taken then.
        """
        free, refs = self._free, self._refs
        if count > len(free) and count > self.num_available:
            raise OutOfBlocksError(
                f"{count} blocks are asked for: {self.num_available} of {self.num_blocks} are left"
            )
        first = max(0, len(free) - count)
        blocks = free[first:]
        blocks.reverse()
        del free[first:]
        if len(blocks) < count:
            blocks += self._contents.reclaim(count - len(blocks))
        for block in blocks:
            refs[block] = 1
        return blocks

    def acquire(self, block: int) -> None:
        """Add a reference to a block that is referenced or cached.

        Raises:
            ValueError: the block is free.
        """
        if self._refs[block] == 0:
            self._contents.hold(block)
        self._refs[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; after the last one the block is cached or free.

        Raises:
            ValueError: nobody holds the block (a double free).
        """
        if self._refs[block] == 0:
            raise ValueError(f"block {block} is released, but nobody holds it")
        self._refs[block] -= 1
        if self._refs[block] == 0 and not self._contents.drop(block):
            self._free.append(block)

    def free(self, blocks: list[int]) -> None:
        """Take back cached blocks that their keeper gave up unasked."""
        self._free += blocks


class _Nothing:
    """Keeps no contents."""

    num_cached = 0
    num_reclaimable = 0

    def hold(self, block: int) -> None:
        raise ValueError(f"block {block} is free and has no contents to share")

    def drop(self, block: int) -> bool:
        return False

    def reclaim(self, count: int) -> list[int]:
        raise AssertionError("nothing is kept")
