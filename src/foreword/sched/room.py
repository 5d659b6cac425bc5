"""Who may take blocks, and who gives way."""

from __future__ import annotations

from bisect import bisect_left

from foreword.kv import KVCache
from foreword.kv.radix import Match
from foreword.sched.growth import Growth
from foreword.sched.running import RunningSet
from foreword.sched.sequence import Sequence


class Room:
    """Shares the pool's blocks out among sequences.

    * **Admission** leaves room for what the running sequences will probably need, so that it is
      seldom undone.
    * **Preemption**: where a sequence needs a block and there is none, the one that loses the least
      work gives its own back, the youngest of equals. What it computed stays in the cache as long
      as nobody needs the space.
    * **Bound**: a sequence that was preempted as often as may be is *settled*. It comes back only
      when all that it may still need is free; that is kept for it, and nobody takes it. So every
      sequence ends.

    Args:
        cache: the blocks.
        running: who holds them.
        growth: what sequences that are not settled will need.
    """

    def __init__(self, cache: KVCache, running: RunningSet, growth: Growth) -> None:
        self._cache = cache
        self._running = running
        self._growth = growth

    def has_block(self, seq: Sequence) -> bool:
        """Whether a running sequence may take a block."""
        free = self._cache.pool.num_available
        return free > 0 and (seq.is_settled or free > self._num_kept(self._running.settled))

    def fits(self, seq: Sequence, hit: Match, admitted: list[Sequence]) -> bool:
        """Whether a sequence that waits can begin with ``hit``.

        Args:
            admitted: those that begin with the same step. They have taken their blocks.
        """
        available = self._cache.pool.num_available
        needed = seq.table.shortfall(hit, len(seq.token_ids))
        if needed > available:
            return False
        others = [*self._running.streams, *self._running.part_way, *admitted]
        if not others:
            return True
        return needed + self._num_to_come([*others, seq]) <= available

    def victim(self) -> Sequence:
        """The running sequence that gives its blocks up."""
        return min(self._running, key=lambda seq: (seq.is_settled, self._lost(seq), _youth(seq)))

    def _num_to_come(self, sequences: list[Sequence]) -> int:
        """Blocks that some sequences will need on top of those of their known tokens."""
        settled = [seq for seq in sequences if seq.is_settled]
        others = [seq for seq in sequences if not seq.is_settled]
        growth = self._growth.peak(
            (seq.num_left, len(seq.token_ids)) for seq in others for _ in seq.draws
        )
        # one block each beside it: it is not of whole blocks
        foreseen = len(others) + int(growth) // self._cache.block_size
        return self._num_kept(settled) + min(foreseen, self._num_kept(others))

    def _num_kept(self, sequences: list[Sequence]) -> int:
        """The same if all of them generate as much as they may."""
        blocks_for, total = self._cache.blocks_for, 0
        for seq in sequences:
            known = len(seq.token_ids)
            shared = known // self._cache.block_size  # by its completions, when they part
            held = len(seq.table.blocks) or blocks_for(known)
            total += shared + len(seq.draws) * (blocks_for(seq.max_known) - shared) - held
        return total

    def _lost(self, seq: Sequence) -> int:
        """Tokens that would have to be computed again: none of what others hold, too."""
        blocks, references = seq.table.blocks, self._cache.pool.references
        num_shared = bisect_left(blocks, True, key=lambda block: references(block) == 1)
        return max(0, seq.num_computed - num_shared * self._cache.block_size)


def _youth(seq: Sequence) -> tuple[int, ...]:
    """Sorts sequences, the youngest first."""
    return tuple(-part for part in seq.rank)
