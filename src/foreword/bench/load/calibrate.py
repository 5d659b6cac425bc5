"""How much of what the client measures is the client's own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.record import LoadResult
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target
from foreword.bench.stats import Percentiles
from foreword.errors import ForewordError

_FIRST_TOKEN_MS, _GAP_MS, _TOKENS = 60, 20, 48
STREAM_S = (_FIRST_TOKEN_MS + _GAP_MS * (_TOKENS - 1)) / 1e3


@dataclass(frozen=True, slots=True)
class Calibration:
    """The client against a mock server that says when it read and wrote. Milliseconds.

    Attributes:
        streams: at once, on average.
        sending_ms: from the client's "sent" to the first byte in the server's hands, whose own
            accepting and reading is in it.
        reading_ms: from the server's write to the client's note of it, for each piece of text.
        ttft_error_ms: measured TTFT less what the server took.
    """

    streams: int
    requests: int
    sending_ms: Percentiles
    reading_ms: Percentiles
    ttft_error_ms: Percentiles

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return asdict(self)


async def calibrate(streams: int = 100, requests: int = 150) -> Calibration:
    """Measure a mock server in a process of its own, at ``streams`` streams at once.

    Client and server get cores of their own where there are two: the kernel would rather wake the
    client where the server runs, and what it then waits is not its own share.

    Raises:
        ForewordError: requests to the mock server failed.
    """
    draw, now_s = random.Random(0), 0.0
    plan = []
    for index in range(requests):
        plan.append(
            PlannedRequest(
                index=index,
                kind="calibration",
                messages=(Message("user", Passage("hello", 1)),),
                max_tokens=_TOKENS,
                intended_s=now_s,
            )
        )
        now_s += draw.expovariate(streams / STREAM_S)
    options = ("--first-token-ms", str(_FIRST_TOKEN_MS), "--gap-ms", str(_GAP_MS))
    with _own_core() as other_core, mock_process(*options, core=other_core) as url:
        result = await run_load(Target(url=url, model="mock"), plan)
    return _compare(result, streams)


@contextmanager
def _own_core() -> Iterator[int | None]:
    """Keep this thread off one core; gives that core, or None where there is but one."""
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        yield None
        return
    other = max(cores)
    os.sched_setaffinity(0, cores - {other})
    try:
        yield other
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def mock_process(*options: str, core: int | None = None) -> Iterator[str]:
    """Run the mock server with the command-line ``options``; gives its URL.

    Args:
        core: the only one that it may use.

    Raises:
        ForewordError: it did not start.
    """
    command = [sys.executable, "-m", "foreword.bench.load.mock", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if core is not None:
                os.sched_setaffinity(process.pid, {core})
            assert process.stdout is not None
            said = process.stdout.readline().split()
            if said[:1] != ["port"]:
                raise ForewordError("the mock server did not start")
            yield f"http://127.0.0.1:{said[1]}"
        finally:
            process.kill()


def _compare(result: LoadResult, streams: int) -> Calibration:
    sending, reading, errors = [], [], []
    for record in result.records:
        if record.failure is not None:
            raise ForewordError(f"the mock server failed: {record.failure.detail}")
        timing, ttft_s, sent_s = record.timing or {}, record.ttft_s or 0.0, record.sent_s or 0.0
        received_s = timing["received_s"] - result.began_s
        written_s = [time_s - result.began_s for time_s in timing["written_s"]]
        sending.append((received_s - sent_s) * 1e3)
        errors.append((ttft_s - (written_s[0] - received_s)) * 1e3)
        pairs = zip(record.token_times_s, written_s, strict=True)
        reading += [(read_s - wrote_s) * 1e3 for read_s, wrote_s in pairs]
    spreads = map(Percentiles.of, (sending, reading, errors))
    return Calibration(streams, len(result.records), *spreads)
