"""`foreword bench serve` from the command line, on the mock server."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import HANG_S

from foreword.bench.load.calibrate import mock_process
from foreword.bench.load.mock import MockRequest, MockServer, Script

FOREWORD = [str(Path(sys.executable).with_name("foreword")), "bench", "serve"]


@pytest.fixture
def mock() -> Iterator[str]:
    with mock_process("--first-token-ms", "20", "--gap-ms", "2", "--tokens-per-piece", "2") as url:
        yield url


def run(*options: str, timeout: float = 150.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FOREWORD, *options], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_whole_run_with_its_reports(mock: str, tmp_path: Path) -> None:
    json_file, html_file = tmp_path / "load.json", tmp_path / "load.html"
    done = run(
        *("--url", mock, "--workload", "chat", "--set", "sessions=2", "--set", "output_tokens=8"),
        *("--num-prompts", "20", "--request-rate", "50", "--slo-ttft-ms", "60000"),
        *("--json", str(json_file), "--html", str(html_file)),
    )
    assert done.returncode == 0, done.stderr
    for words in ("TTFT from when due", "turn 1", "20 of 20 requests good", "goodput", "own share"):
        assert words in done.stdout
    report = json.loads(json_file.read_text())
    assert (report["partial"], report["target"]["model"]) == (False, "mock")
    assert report["summary"]["ttft_ms"]["p50"] >= 20
    assert report["summary"]["completion_tokens"] == 20 * 8
    assert [request["index"] for request in report["requests"]] == list(range(2, 22))
    assert all(len(request["token_times_s"]) == 4 for request in report["requests"])
    assert report["calibration"]["streams"] == 100

    page = html_file.read_text()
    markup = re.sub(r"(?s)<script.*?</script>", "", page)
    assert not re.search(r"(src|href)=", markup)
    assert not re.search(r"<script[^>]+src", page)
    assert page.count("plotly-graph-div") >= 4
    assert "20 of 20 requests good" in markup


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    json_file = tmp_path / "load.json"

    async def interrupted() -> tuple[int, str]:
        enough = asyncio.Event()

        def behave(request: MockRequest) -> Script:
            if request.number == 10:  # the first five are not yet the run
                enough.set()
            return Script(0.001)

        async with MockServer(behave) as server:
            options = ("--url", server.url, "--no-calibrate", "--num-prompts", "1000")
            running = await asyncio.create_subprocess_exec(
                *(*FOREWORD, *options, "--json", str(json_file)),
                stdout=asyncio.subprocess.PIPE,
            )
            await asyncio.wait_for(enough.wait(), HANG_S)
            running.send_signal(signal.SIGINT)
            shown, _ = await asyncio.wait_for(running.communicate(), HANG_S)
            return running.returncode or 0, shown.decode()

    status, shown = asyncio.run(interrupted())
    assert status == 130
    assert "partial: fixed" in shown
    report = json.loads(json_file.read_text())
    assert report["partial"] is True
    assert 0 < report["summary"]["good"] < 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--url", "http://127.0.0.1:1"), "no server answers at http://127.0.0.1:1"),
        (("--url", "nowhere"), "is no URL such as"),
        (("--workload", "fast"), "'fast' is none of fixed, chat"),
        (("--workload", "trace"), "which file?"),
        (("--workload", "chat", "--set", "turn=3"), "is not name=value with one of"),
        (("--workload", "chat", "--set", "turns=0"), "turns: must be above 0"),
        (("--num-prompts", "0"), "num_prompts: must be at least 1"),
        (("--extra-body", "[1]"), "no JSON object"),
    ],
)
def test_mistakes_are_told_in_a_line(options: tuple[str, ...], words: str) -> None:
    done = run(*options)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
