"""`foreword bench serve` on a quiet machine: whether what it measures is so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import uvloop

from foreword.bench.load.calibrate import calibrate
from foreword.bench.load.report import LoadSettings, run_load_bench
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Mixed
from foreword.bench.served import ServedProcess

pytestmark = [pytest.mark.selftest, pytest.mark.model, pytest.mark.timeout(0)]


@pytest.fixture
def server(smollm2_path: Path) -> Iterator[ServedProcess]:
    command = [sys.executable, "-m", "foreword", "serve", str(smollm2_path), "--port", "{port}"]
    process = ServedProcess("foreword", command, ready_path="/readyz")
    process.wait_until_ready()
    yield process
    process.close()


def test_ttft_is_right_within_half_a_millisecond_at_100_streams() -> None:
    calibration = uvloop.run(calibrate(streams=100, requests=500))
    print(calibration.to_json())
    assert calibration.ttft_error_ms.p90 < 0.5
    assert calibration.reading_ms.p90 < 0.5


def test_server_and_client_agree_over_500_mixed_requests(server: ServedProcess) -> None:
    recipe = Mixed(short_tokens=16, long_tokens=160, long_share=0.1, output_tokens=4)
    settings = LoadSettings(num_prompts=500, max_concurrency=4, calibrate=False)
    report = uvloop.run(run_load_bench(Target(url=server.url), recipe, settings))
    summary = report.summary
    assert (summary.good, summary.errors) == (500, {})
    assert summary.completion_tokens == 500 * 4
    assert summary.ttft_ms is not None
    assert summary.server is not None
    print(asdict(summary.ttft_ms), asdict(summary.server.ttft_ms), summary.server.remainder_ms)
    assert (summary.server.requests, summary.server.count_mismatches) == (500, 0)
    for name in ("p50", "p99"):
        ours = getattr(summary.ttft_ms, name)
        theirs = getattr(summary.server.ttft_ms, name)
        assert abs(ours - theirs) < max(5.0, 0.05 * ours), name
