"""Arrivals that never stop. `make soak` lets them come for ten minutes."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.soak import resident_bytes

from foreword.bench.load.prepare import prepare
from foreword.bench.load.record import LoadResult, RequestRecord
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Mixed, plan
from foreword.bench.served import ServedProcess

SOAK_S = float(os.environ.get("SOAK_S", "6"))
IN_FLIGHT = 48  # of which 16 run: there is always somebody in line
LOOK_S = 0.5
MOST_GROWTH_BYTES = 64 << 20
MOST_GAPS = 100  # that the longest gap between tokens is, in typical ones
LEAST_ANSWERS = 3  # of either kind
MIXED = Mixed(short_tokens=30, long_tokens=500, long_share=0.2, output_tokens=16)


@pytest.fixture
def server(smollm2_path: Path) -> Iterator[ServedProcess]:
    """Serve with a pool that is too small for all who run, so that some are preempted."""
    options = ["--max-num-seqs", "16", "--num-blocks", "256", "--tpot-slo-ms", "50"]
    options += ["--request-history", "100"]
    command = [sys.executable, "-m", "foreword", "serve", str(smollm2_path), "--port", "{port}"]
    process = ServedProcess("foreword", [*command, *options], ready_path="/readyz")
    yield process
    process.close()


async def load(server: ServedProcess) -> tuple[LoadResult, list[int]]:
    """Keep requests in flight for a while; return them and the server's memory as it was."""
    target, corpus = await prepare(Target(url=server.url), ["ignore_eos"])
    requests = plan(MIXED, corpus, count=round(60 * SOAK_S)).requests
    stop, left = asyncio.Event(), Counter(dict.fromkeys(("short", "long"), LEAST_ANSWERS))

    def answered(record: RequestRecord) -> None:
        left[record.kind] -= 1

    running = asyncio.ensure_future(
        run_load(
            target,
            requests,
            concurrency=IN_FLIGHT,
            timeout_s=SOAK_S + 120,
            stop=stop,
            on_record=answered,
        )
    )
    memory: list[int] = []
    while len(memory) < SOAK_S / LOOK_S or max(left.values()) > 0:
        await asyncio.sleep(LOOK_S)
        memory.append(resident_bytes(server.pid))
        assert not running.done()
    stop.set()
    return await running, memory


@pytest.mark.timeout(SOAK_S + 120)
def test_all_are_served_and_nothing_grows(server: ServedProcess) -> None:
    server.wait_until_ready()
    result, memory = asyncio.run(load(server))
    ended = [record for record in result.records if record.finish_reason is not None]
    interrupted = [record for record in result.records if record.finish_reason is None]
    assert all(record.ok for record in ended)
    assert len(interrupted) <= IN_FLIGHT  # those that the end of the test cut off
    assert {record.kind for record in ended} == {"short", "long"}
    gaps_s = [gap_s for record in ended for gap_s in record.itl_s]
    assert max(gaps_s) < MOST_GAPS * statistics.median(gaps_s)
    third = len(memory) // 3
    growth_bytes = max(memory[-third:]) - max(memory[:third])
    assert growth_bytes < MOST_GROWTH_BYTES
    print(
        f"\n{len(ended)} requests, the longest gap between tokens {max(gaps_s):.2f} s, "
        f"memory {memory[-1] >> 20} MB, in the last third {growth_bytes >> 20} MB more"
    )
