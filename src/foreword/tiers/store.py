"""Blocks to and from the tiers, in threads of their own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from foreword.kv.identity import BlockName
from foreword.tiers.sightings import Sightings

logger = logging.getLogger(__name__)

MAX_LOSS = 0.05  # of the time to compute a prefix may be lost by trying to load it
_MAX_PENDING_BYTES = 256 << 20  # to be written; what comes on top is not kept
_NUM_READERS = 2
_FAILURES = 3  # in a row, after which a tier is left alone
_REST_S = 30.0  # for so long
_FIRST_RATE = 500e6  # bytes a second: a guess, until something has been read
_WEIGHT = 0.2  # of the newest measurement
_LEAST_S = 0.02  # of computing: a shorter prefix is not asked for
_FORGET = 1.05  # how fast a rate that forbids loading is doubted, for each load forgone


class Tier(Protocol):
    """Somewhere blocks are kept. Calls may block, and raise `OSError`."""

    @property
    def name(self) -> str:
        """What metrics call it."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes that it holds."""
        ...

    def has(self, name: BlockName) -> bool:
        """Whether the block is there."""
        ...

    def get(self, name: BlockName) -> bytes | None:
        """The block's contents; None where it is not there."""
        ...

    def put(self, name: BlockName, contents: bytes) -> None:
        """Keep the block, unless it is there."""
        ...

    def clear(self) -> None:
        """Drop every block."""
        ...


class Breaker:
    """Leaves something alone for a while after it failed several times in a row."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._until_s = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether it is left alone now."""
        return self._clock() < self._until_s

    def succeeded(self) -> None:
        """It worked."""
        self._failures = 0

    def failed(self) -> bool:
        """It did not; return whether it is left alone from now on."""
        self._failures += 1
        if self._failures < _FAILURES:
            return False
        self._failures = 0
        self._until_s = self._clock() + _REST_S
        return True


class Fetch:
    """Consecutive blocks on their way back; readers append, the step loop looks.

    Attributes:
        names: the blocks, first to last.
        recompute_s: how long it takes to compute one of them.
        began_s: when it was asked for.
        expected: how many of them the tiers have; all, until that is known.
        contents: of those that have come, with the name of their tier.
        done: whether no more will come.
        abandoned: whether nobody waits for it any more.
    """

    def __init__(self, names: Sequence[BlockName], recompute_s: float, began_s: float) -> None:
        self.names = names
        self.recompute_s = recompute_s
        self.began_s = began_s
        self.expected = len(names)
        self.contents: list[tuple[str, bytes]] = []
        self.done = False
        self.abandoned = False

    def deadline_s(self) -> float:
        """Until when to wait, as far as has come.

        Loading goes on while it is ahead of computing. So whatever the tiers do, a request is at
        most `MAX_LOSS` of the computing time later than without them.
        """
        total_s = self.expected * self.recompute_s
        share = len(self.contents) / max(1, self.expected)
        return self.began_s + total_s * max(MAX_LOSS, share)


class BlockStore:
    """Tiers from fast to slow: written behind, read ahead.

    Nothing here blocks the caller. What cannot be written in time is not kept; what cannot be
    read is a miss. A tier that fails is left alone for a while, and where readers hang in calls
    that do not return, nothing is asked for.

    Args:
        tiers: the fastest first.
        block_bytes: size of a block's contents.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        block_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tiers = tuple(tiers)
        self._block_bytes = block_bytes
        self._clock = clock
        self._writes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Fetch | None] = queue.SimpleQueue()
        self._pending_bytes = 0
        self._arrived = threading.Condition()
        self._reading: set[Fetch] = set()
        self._read_breaker = Breaker(clock)
        self._write_breakers = {tier.name: Breaker(clock) for tier in tiers}
        self._bytes_per_s = _FIRST_RATE
        self._sightings = Sightings()
        self._threads = [
            threading.Thread(target=target, name=f"foreword-{name}", daemon=True)
            for name, target, count in (
                ("kv-write", self._write_all, 1),
                ("kv-read", self._read_all, _NUM_READERS),
            )
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, name: BlockName, contents: bytes) -> None:
        """Have a block written, unless too much waits to be written already."""
        with self._arrived:
            if self._pending_bytes + len(contents) > _MAX_PENDING_BYTES:
                return
            self._pending_bytes += len(contents)
        self._writes.put(partial(self._write_to_all, name, contents))

    def clear(self) -> Future[None]:
        """Have every tier emptied, after what waits to be written.

        Returns:
            What is done when that is; with the `OSError` of a tier that could not be emptied.
        """
        done: Future[None] = Future()
        self._writes.put(partial(self._clear_all, done))
        return done

    def fetch(self, names: Sequence[BlockName], recompute_s: float) -> Fetch | None:
        """Ask for consecutive blocks, as many from the first on as there are.

        Args:
            recompute_s: how long it takes to compute one.

        Returns:
            What to watch; None where there is no use in asking.
        """
        if not self._may_read(len(names) * recompute_s):
            return None
        fetch = Fetch(names, recompute_s, self._clock())
        self._reads.put(fetch)
        return fetch

    def expect(
        self, digests: Iterable[bytes], num_blocks: int, recompute_s: float
    ) -> tuple[int, float]:
        """What would come of fetching ``num_blocks`` blocks, as far as can be told without asking.

        Args:
            digests: of the blocks, first to last; no more of them are taken than are needed.
            recompute_s: how long it takes to compute one.

        Returns:
            How many would come, and the seconds that they would take.
        """
        block_s = self._block_bytes / self._bytes_per_s
        if block_s > recompute_s or not self._may_read(num_blocks * recompute_s):
            return 0, 0.0
        count = self._sightings.num_leading(digests)
        return count, count * block_s

    def _may_read(self, recompute_s: float) -> bool:
        """Whether there is any use in asking for what takes so long to compute."""
        with self._arrived:
            hanging = sum(fetch.abandoned for fetch in self._reading)
        if recompute_s < _LEAST_S or hanging == _NUM_READERS:
            return False
        return bool(self.tiers) and not self._read_breaker.is_open

    def wait(self, timeout_s: float) -> None:
        """Sleep until a block has come, or so long."""
        with self._arrived:
            self._arrived.wait(timeout_s)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything is written; return whether it is."""
        deadline_s = self._clock() + timeout_s
        with self._arrived:
            return self._arrived.wait_for(
                lambda: self._pending_bytes == 0, deadline_s - self._clock()
            )

    def close(self) -> None:
        """Write what is waiting, as far as that goes soon, and end the threads."""
        self.flush()
        self._writes.put(None)
        for _ in range(_NUM_READERS):
            self._reads.put(None)

    # In the writer's thread.

    def _write_all(self) -> None:
        while (work := self._writes.get()) is not None:
            work()

    def _write_to_all(self, name: BlockName, contents: bytes) -> None:
        for tier in self.tiers:
            self._write(tier, name, contents)
        with self._arrived:
            self._pending_bytes -= len(contents)
            self._arrived.notify_all()

    def _write(self, tier: Tier, name: BlockName, contents: bytes) -> None:
        breaker = self._write_breakers[tier.name]
        if breaker.is_open:
            return
        try:
            tier.put(name, contents)
            self._sightings.note(name.digest, True)
            breaker.succeeded()
        except OSError as error:
            if breaker.failed():
                logger.warning("blocks are not written to %s for a while: %s", tier.name, error)

    def _clear_all(self, done: Future[None]) -> None:
        self._sightings.clear()
        failure: OSError | None = None
        for tier in self.tiers:
            try:
                tier.clear()
            except OSError as error:
                failure = failure or error
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    # In a reader's thread.

    def _read_all(self) -> None:
        while (fetch := self._reads.get()) is not None:
            with self._arrived:
                self._reading.add(fetch)
            try:
                self._read(fetch)
                self._read_breaker.succeeded()
            except OSError as error:
                if self._read_breaker.failed():
                    logger.warning("blocks are computed, not loaded, for a while: %s", error)
            fetch.done = True
            with self._arrived:
                self._reading.remove(fetch)
                self._arrived.notify_all()

    def _read(self, fetch: Fetch) -> None:
        fetch.expected = self._num_there(fetch)
        if self._block_bytes / self._bytes_per_s > fetch.recompute_s:
            self._bytes_per_s *= _FORGET
            return
        began_s = self._clock()
        for name in fetch.names[: fetch.expected]:
            if fetch.abandoned:
                break
            found = self._get(name)
            if found is None:
                self._sightings.note(name.digest, False)
                break
            fetch.contents.append(found)
        if fetch.expected:
            num_bytes = len(fetch.contents) * self._block_bytes
            rate = num_bytes / max(1e-6, self._clock() - began_s)
            self._bytes_per_s += _WEIGHT * (rate - self._bytes_per_s)

    def _num_there(self, fetch: Fetch) -> int:
        for count, name in enumerate(fetch.names):
            if fetch.abandoned:
                return count
            is_there = any(tier.has(name) for tier in self.tiers)
            self._sightings.note(name.digest, is_there)
            if not is_there:
                return count
        return len(fetch.names)

    def _get(self, name: BlockName) -> tuple[str, bytes] | None:
        for tier in self.tiers:
            contents = tier.get(name)
            if contents is not None:
                return tier.name, contents
        return None
