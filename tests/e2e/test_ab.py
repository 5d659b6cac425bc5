"""`foreword ab` from the command line to the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.waiting import HANG_S

from foreword.bench.load.mock import MockRequest, MockServer, Script

SUPPORT = Path(__file__).parents[1] / "support"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "foreword", "ab", *arguments]


def mock(first_token_ms: float) -> str:
    program = shlex.join([sys.executable, str(SUPPORT / "noisy_server.py")])
    return f"{program} --port {{port}} --seed 1 --first-token-ms {first_token_ms}"


def start(report: Path, *arguments: str) -> subprocess.Popen[str]:
    small = ("--set", "prompt_tokens=8", "--set", "output_tokens=2", "--cooldown-s", "0")
    return subprocess.Popen(
        command(*small, "--json", str(report), *arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(SUPPORT.parent)},
    )  # fmt: skip


def test_twice_as_slow_is_worse_and_the_page_says_so(tmp_path: Path) -> None:
    report, page = tmp_path / "ab.json", tmp_path / "ab.html"
    arguments = ("--pairs", "8", "--requests", "2", "--warmup", "0", "--aa-pairs", "0")
    sides = ("--a", mock(2), "--b", mock(150))
    run = start(report, *sides, "--slo-ttft-ms", "100", "--html", str(page), *arguments)
    out, err = run.communicate(timeout=170)
    assert run.returncode == 3, err
    assert out.strip().splitlines()[-1].startswith("Side b is worse: TTFT p50")
    data: dict[str, Any] = json.loads(report.read_text())
    assert (data["verdict"]["word"], len(data["pairs"])) == ("worse", 8)
    assert data["primary"]["a"] < data["primary"]["b"]
    assert "goodput" in [effect["metric"] for effect in data["secondary"]]
    html = page.read_text()
    assert "Side b is worse" in html
    assert "Plotly.newPlot" in html
    assert "<script src" not in html


@contextlib.contextmanager
def counted_server(enough: int) -> Iterator[tuple[str, threading.Event]]:
    """A server here, and an event that is set once it was asked often ``enough``."""
    asked = threading.Event()
    ready: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    def behave(request: MockRequest) -> Script:
        if request.number >= enough:
            asked.set()
        return Script(0.001, (0.001,))

    async def serve() -> None:
        async with MockServer(behave) as server:
            over = asyncio.Event()
            ready.put((server.url, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    url, loop, over = ready.get(timeout=HANG_S)
    yield url, asked
    loop.call_soon_threadsafe(over.set)
    thread.join()


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_running(tmp_path: Path) -> None:
    report = tmp_path / "ab.json"
    design = ("--pairs", "100000", "--aa-pairs", "0", "--requests", "1", "--warmup", "0")
    with counted_server(enough=20) as (url, asked):
        run = start(report, "--a", url, "--b", mock(1), *design)
        assert asked.wait(HANG_S)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        assert children
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=170)
    assert run.returncode == 130, err
    assert "pairs of blocks: interrupted" in out.replace("\n", " ")
    data = json.loads(report.read_text())
    assert (data["partial"], data["ended"], data["exit_code"]) == (True, "interrupted", 130)
    assert 0 < len(data["pairs"]) < 100000
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_sides_that_cannot_be_are_told_in_a_line(tmp_path: Path) -> None:
    run = start(tmp_path / "ab.json", "--a", "http://127.0.0.1:9", "--b", "http://127.0.0.1:9")
    out, err = run.communicate(timeout=170)
    assert run.returncode == 1
    assert out == ""
    assert "no server answers at http://127.0.0.1:9" in err.splitlines()[-1]


def test_our_own_sides_show_what_was_active_and_what_it_cost(
    smollm2_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "ab.json"
    arguments = ("--both", str(smollm2_path), "--a", "--compute float32", "--b", "--compute int8")
    blocks = ("--pairs", "8", "--requests", "1", "--warmup", "0", "--aa-pairs", "0")
    run = start(report, *arguments, *blocks, "--no-restart")
    out, err = run.communicate(timeout=170)
    assert run.returncode in (0, 3, 4), err
    data = json.loads(report.read_text())
    assert (data["evidence"]["a"]["compute"], data["evidence"]["b"]["compute"]) == (
        "float32",
        "int8",
    )
    computed = data["evidence"]["a"]["prompt_tokens"] - data["evidence"]["a"]["cached_tokens"]
    assert computed >= 8, "of the prompts only the chat template was found in the cache"
    quality = data["quality"]
    assert quality["same"] is True
    assert quality["a"]["kl_mean"] == 0.0
    assert 0 < quality["b"]["kl_mean"] <= 0.003
    assert "Quality: the same." in out
