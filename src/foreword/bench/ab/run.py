"""Blocks of requests to both sides, one after the other, in an order drawn by chance."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foreword.bench.ab.blocks import Block, BlockPair, Side, draw_order
from foreword.bench.ab.settings import AbSettings
from foreword.bench.load.plan import PlannedRequest
from foreword.bench.load.record import LoadResult, RequestRecord
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target
from foreword.bench.served import ServedProcessError
from foreword.errors import ForewordError

Planner = Callable[[int, str], Sequence[PlannedRequest]]
"""From the number of a pair and a salt to a block's requests, warm-up included: other salts give
prompts that begin otherwise and are the same in all else."""

INTERRUPTED = "interrupted"

IsGood = Callable[[RequestRecord], bool]


class AbError(ForewordError):
    """A run that could measure nothing."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One side's server during a run.

    Attributes:
        cpu_s: its processor seconds so far; None where they cannot be known.
        restart: starts it anew before each block; None: it lives on.
    """

    target: Target
    cpu_s: Callable[[], float | None] = lambda: None
    restart: Callable[[], None] | None = None


@dataclass(slots=True)
class Measured:
    """What a run has measured so far.

    Attributes:
        aa_pairs: side a in both places.
        records: requests of ``pairs`` by side.
        idle_cpu: processor seconds per second of a side while the other's blocks ran.
        ended: why the run stopped before its end, or None.
    """

    aa_pairs: list[BlockPair] = field(default_factory=list)
    pairs: list[BlockPair] = field(default_factory=list)
    records: dict[Side, list[RequestRecord]] = field(default_factory=lambda: {"a": [], "b": []})
    idle_cpu: dict[Side, list[float]] = field(default_factory=lambda: {"a": [], "b": []})
    ended: str | None = None


class _EndedError(Exception):
    """The run cannot go on; the message says why."""


class AbRunner:
    """Runs the warm-up, then side a beside itself, then a beside b.

    Args:
        plan: makes the requests of a pair; both sides get the same.
        concurrency: requests at once; None: each goes out when it is due.
        is_good: whether a request met the SLO; None: none was stated.
        on_block: called after each block.
        stop: set to end the run; pairs that are complete are kept.
    """

    def __init__(
        self,
        lanes: Mapping[Side, Lane],
        plan: Planner,
        settings: AbSettings,
        *,
        concurrency: int | None = 1,
        is_good: IsGood | None = None,
        on_block: Callable[[], None] = lambda: None,
        stop: asyncio.Event | None = None,
    ) -> None:
        self._lanes = lanes
        self._plan = plan
        self._settings = settings
        self._concurrency = concurrency
        self._is_good = is_good
        self._on_block = on_block
        self._stop = stop or asyncio.Event()
        self._same_server = lanes["a"].target.url == lanes["b"].target.url
        self._measured = Measured()

    @staticmethod
    def num_blocks(settings: AbSettings) -> int:
        """How often ``on_block`` is called in a whole run."""
        return 2 * (1 + settings.aa_pairs + settings.pairs)

    async def run(self) -> Measured:
        """Return everything that was measured, `Measured.ended` set if that is not all.

        Raises:
            AbError: not even the warm-up went through.
        """
        settings, measured = self._settings, self._measured
        rng = np.random.default_rng([settings.seed, 0])
        aa_order, order = draw_order(settings.aa_pairs, rng), draw_order(settings.pairs, rng)
        both: Mapping[Side, Side] = {"a": "a", "b": "b"}
        try:
            await self._pair("warm-up", 0, "a", both)
        except _EndedError as end:
            if not self._stop.is_set():
                raise AbError(f"the warm-up failed: {end}") from None
            measured.ended = INTERRUPTED
            return measured
        try:
            for number, first in enumerate(aa_order, 1):
                pair, _ = await self._pair("a/a", number, first, {"a": "a", "b": "a"})
                measured.aa_pairs.append(pair)
            for number, first in enumerate(order, 1 + len(aa_order)):
                pair, results = await self._pair("a/b", number, first, both)
                measured.pairs.append(pair)
                for side, result in results.items():
                    measured.records[side] += result.records
        except _EndedError as end:
            measured.ended = str(end)
        return measured

    async def _pair(
        self, phase: str, number: int, first: Side, players: Mapping[Side, Side]
    ) -> tuple[BlockPair, dict[Side, LoadResult]]:
        """Run one pair; ``players`` are the sides that stand in a's and b's places."""
        order: tuple[Side, Side] = ("a", "b") if first == "a" else ("b", "a")
        one_server = self._same_server or players["a"] == players["b"]
        results: dict[Side, LoadResult] = {}
        for place in order:
            # On one server the second block of a pair would find the first one's prompts cached.
            salt = f"{phase} {number} {place}" if one_server else f"{phase} {number}"
            results[place] = await self._block(players[place], self._plan(number, salt))
            self._on_block()
        a, b = (to_block(results[place], self._is_good) for place in ("a", "b"))
        return BlockPair(a, b, first), results

    async def _block(self, side: Side, requests: Sequence[PlannedRequest]) -> LoadResult:
        """Run one block after its cooldown, and give what came after its warm-up."""
        lane = self._lanes[side]
        if lane.restart is not None:
            try:
                await asyncio.to_thread(lane.restart)
            except ServedProcessError as error:
                raise _EndedError(str(error)) from None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._settings.cooldown_s)
        with self._watching("b" if side == "a" else "a"):
            result = await run_load(
                lane.target, requests, concurrency=self._concurrency, stop=self._stop
            )
        if self._stop.is_set():
            raise _EndedError(INTERRUPTED)
        failures = [record.failure for record in result.records if record.failure is not None]
        if len(failures) == len(result.records):
            last = failures[-1]
            raise _EndedError(
                f"all requests to side {side} failed: {last.kind.value}: {last.detail}"
            )
        return result.without_warmup(self._settings.warmup)

    @contextlib.contextmanager
    def _watching(self, idle: Side) -> Iterator[None]:
        """Note how busy a side is whose turn it is not."""
        cpu_s = None if self._same_server else self._lanes[idle].cpu_s
        before, began_s = cpu_s and cpu_s(), time.monotonic()
        yield
        after = cpu_s and cpu_s()
        if before is not None and after is not None:
            self._measured.idle_cpu[idle].append((after - before) / (time.monotonic() - began_s))


def to_block(result: LoadResult, is_good: IsGood | None) -> Block:
    """Take what the statistics need from a block's records; failed requests become nan."""
    records = sorted(result.records, key=lambda record: record.index)
    sent_s = [record.sent_s for record in records if record.sent_s is not None]
    return Block(
        ttft_s=_latencies(record.ttft_s if record.ok else None for record in records),
        tpot_s=_latencies(record.tpot_s if record.ok else None for record in records),
        num_good=None if is_good is None else sum(map(is_good, records)),
        duration_s=max(record.ended_s for record in records) - min(sent_s, default=0.0),
    )


def _latencies(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)
