"""Chooses what the next step computes."""

from __future__ import annotations

from foreword.core.trace import HeldBack
from foreword.kv import KVCache
from foreword.sched.batch import Batch
from foreword.sched.fair import FairQueue
from foreword.sched.outputs import Counters
from foreword.sched.packing import Packing
from foreword.sched.room import Room
from foreword.sched.running import RunningSet
from foreword.sched.sequence import Sequence

_MOST_DEFERRED = 32  # in one step: each is compared with all prompts of the step
_PASSED_SHARE = 4  # of a prompt's tokens, one in so many may begin ahead of it


class Planner:
    """Fills a step: streams first, then prompts in line, within the bounds of packing and room.

    A prompt that lacks blocks waits for streams to end. Meanwhile the next in line pass it, as long
    as all that ever do have a quarter of its tokens at most: they delay it by no more work than
    that, and in the end what comes free is for it alone.

    Args:
        running, waiting: all sequences; those that begin or give way change sides here.
        max_tokens: tokens of a step.
        max_running: completions that may run at once.
        totals: counts who begins and who gives way.
    """

    def __init__(
        self,
        cache: KVCache,
        running: RunningSet,
        waiting: FairQueue,
        room: Room,
        packing: Packing,
        *,
        max_tokens: int,
        max_running: int,
        totals: Counters,
    ) -> None:
        self._cache = cache
        self._running = running
        self._waiting = waiting
        self._room = room
        self._packing = packing
        self._max_tokens = max_tokens
        self._max_running = max_running
        self._totals = totals

    def choose(self, now: float) -> Batch:
        """The next step; nothing is in it if there is nothing to compute."""
        batch = Batch(self._max_tokens, self._cache.block_size)
        self._take_streams(batch)
        self._take_prompts(batch, now)
        return batch

    def _take_streams(self, batch: Batch) -> None:
        """Plan every running sequence that misses one token, each with a block to write it to."""
        streams = self._running.streams
        for seq in [seq for seq in streams if seq.num_computed >= seq.table.writable]:
            # it may have given way to one before it
            while seq.table.blocks and seq.table.needs_block(seq.num_computed):
                if self._room.has_block(seq):
                    batch.block_copies += seq.table.extend(seq.num_computed)
                else:
                    self._preempt(self._room.victim(), batch)
        batch.add_streams(self._running.streams)

    def _preempt(self, seq: Sequence, batch: Batch) -> None:
        """Take a sequence's blocks; it waits to be computed again."""
        self._totals.preemptions += 1
        self._running.remove(seq)
        seq.pause()
        self._waiting.add(seq)
        batch.preempted.append(seq.tracked.request.request_id)

    def _take_prompts(self, batch: Batch, now: float) -> None:
        """Spend the rest of the budget on sequences that miss more, running or waiting."""
        part_way = self._running.part_way
        batch.slots += sum(len(seq.draws) for seq in part_way)
        if batch.slots >= self._max_running and not part_way:  # nobody can begin, however short
            batch.held_back = "sequences" if self._waiting else None
            return
        line = self._waiting.line(part_way)
        aged = self._packing.aged(line.oldest, now)
        if aged is line.first:
            aged = None  # it needs no share: it may have all
        if aged is not None:
            batch.held_back = self._serve(aged, batch, self._packing.share(batch.budget), now)
            if batch.held_back not in (None, "blocks"):
                line.close()  # what it lacks is for nobody else
        for seq in line:
            if seq is aged:
                continue
            held_back = self._serve(seq, batch, batch.budget, now, line.num_left + 1)
            batch.held_back = batch.held_back or held_back
            if held_back == "budget" or len(batch.deferred) > _MOST_DEFERRED:
                break
            if held_back == "sequences" or (held_back == "blocks" and seq is not batch.blocked):
                line.close()
        for seq in batch.admitted:
            self._waiting.discard(seq)
            self._running.add(seq)

    def _serve(
        self, seq: Sequence, batch: Batch, most: int, now: float, num_behind: int = 0
    ) -> HeldBack | None:
        """Plan up to ``most`` tokens of a prompt.

        Returns:
            Why it got none; None also where it is sooner done by finding its prefix in the cache, a
            step later.
        """
        most = self._packing.most_tokens(batch, seq, most, num_behind)
        if most == 0:
            return "budget"
        if seq in self._waiting:
            if batch.blocked is not None and not _lets_pass(batch.blocked, seq):
                return "blocks"
            if self._cache.prefixes is not None and batch.computes_prefix_of(seq):
                batch.defer(seq)
                return "prefix" if len(batch.deferred) == _MOST_DEFERRED else None
            slots = batch.slots + len(seq.draws)
            if slots > self._max_running:
                return "sequences"
            if not self._start(seq, batch):
                batch.blocked = batch.blocked or seq
                return "blocks"
            if batch.blocked is not None:
                batch.blocked.num_passed += seq.num_uncached
            batch.slots = slots
        count = min(seq.num_missing, most)
        batch.add(seq, count)
        self._waiting.take(seq, count)
        return None

    def _start(self, seq: Sequence, batch: Batch) -> bool:
        """Admit a waiting sequence if there is room for it beside what is running.

        Where nothing runs, nothing ends that could make room, and pins have to give way.
        """
        hit = seq.table.match(seq.max_cached_tokens)
        while not self._room.fits(seq, hit, batch.admitted):
            if self._running or batch.admitted or not self._cache.pins_give_way():
                return False
        batch.block_copies += seq.table.start(hit, len(seq.token_ids))
        seq.num_computed = hit.num_tokens(self._cache.block_size)
        batch.admitted.append(seq)
        tracked = seq.tracked
        if not tracked.admitted:
            self._cache.count_hit(hit)
            self._waiting.begin(seq)
            tracked.admitted = True
            tracked.num_cached_tokens = seq.num_computed
            self._totals.admit(tracked.num_prompt_tokens, seq.num_computed, tracked.loaded)
        return True


def _lets_pass(blocked: Sequence, seq: Sequence) -> bool:
    """Whether a prompt may begin ahead of one that lacks blocks; never ahead of a stream."""
    most = blocked.num_uncached // _PASSED_SHARE
    return not blocked.is_stream and blocked.num_passed + seq.num_uncached <= most
