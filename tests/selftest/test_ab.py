"""`foreword ab` on a busy machine: how often it errs, and whether it finds what was planted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
FIRST_TOKEN_MS = 20.0

pytestmark = [pytest.mark.selftest, pytest.mark.usefixtures("busy_machine"), pytest.mark.timeout(0)]


def ab(a: str, b: str, report_file: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "foreword", "ab", "--a", a, "--b", b, *arguments]
    environment = os.environ | {"PYTHONPATH": str(SUPPORT.parent)}
    done = subprocess.run(
        [*command, "--json", str(report_file)],
        capture_output=True, text=True, timeout=600, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode in (0, 3, 4), done.stderr
    report: dict[str, Any] = json.loads(report_file.read_text())
    assert report["exit_code"] == done.returncode
    return report


def mock(seed: int, first_token_ms: float = FIRST_TOKEN_MS) -> str:
    """A server on a machine whose slow spells both sides share."""
    program = shlex.join([sys.executable, str(SUPPORT / "noisy_server.py")])
    return f"{program} --port {{port}} --seed {seed} --first-token-ms {first_token_ms}"


SHORT = ("--set", "output_tokens=2", "--set", "prompt_tokens=8", "--cooldown-s", "0.01")


def together(runs: Iterable[Callable[[], dict[str, Any]]]) -> list[dict[str, Any]]:
    """A few runs at once: each takes little of a core, and disturbs the others."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda run: run(), runs))


def words(reports: list[dict[str, Any]]) -> list[str]:
    for report in reports:
        change = report["primary"]["change"]
        print({name: round(value, 4) for name, value in change.items()}, report["verdict"])
    return [report["verdict"]["word"] for report in reports]


def test_of_40_equal_pairs_of_sides_3_at_most_seem_different(tmp_path: Path) -> None:
    reports = together(
        partial(
            ab, mock(seed), mock(seed), tmp_path / f"{seed}.json", *SHORT,
            "--seed", str(seed), "--aa-pairs", "0",
        )
        for seed in range(40)
    )  # fmt: skip
    assert sum(word != "not shown" for word in words(reports)) <= 3


def test_ten_percent_are_found_9_times_of_10(tmp_path: Path) -> None:
    slower = 1.1 * FIRST_TOKEN_MS
    reports = together(
        partial(
            ab, mock(seed), mock(seed, slower), tmp_path / f"{seed}.json", *SHORT,
            "--seed", str(seed), "--requests", "24",
        )
        for seed in range(100, 110)
    )  # fmt: skip
    assert words(reports).count("worse") >= 9


@pytest.mark.model
def test_a_delay_before_our_own_server_is_found(tmp_path: Path, smollm2_path: Path) -> None:
    """10 % of the TTFT, which is measured first: both ways through the same proxy."""
    inner = shlex.join(
        [sys.executable, "-m", "foreword", "serve", str(smollm2_path), "--port", "{inner}"]
    )
    proxy = shlex.join([sys.executable, str(SUPPORT / "delaying_proxy.py"), "--port", "{port}"])
    arguments = ("--set", "prompt_tokens=128", "--set", "output_tokens=2", "--restart")

    def side(delay_ms: float) -> str:
        return f"{proxy} --delay-ms {delay_ms} -- {inner}"

    equal = ab(side(0), side(0), tmp_path / "ab.json", *arguments)
    slower = side(0.1 * equal["primary"]["a"])
    assert words([equal, ab(side(0), slower, tmp_path / "ab.json", *arguments)]) == [
        "not shown",
        "worse",
    ]
