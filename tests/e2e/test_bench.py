"""`foreword bench` on the real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_latency_measures_the_model_cold(smollm2_path: Path, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    command = [str(Path(sys.executable).with_name("foreword")), "bench", "latency"]
    command += ["--model", str(smollm2_path), "--json", str(report_file)]
    command += ["--prompt-lengths", "20,40", "--output-lengths", "1,3"]
    command += ["--repeats", "2", "--warmup", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert "TTFT ms" in done.stdout

    report = json.loads(report_file.read_text())
    assert report["engine"]["settings"]["enable_prefix_caching"] is True
    assert [(c["prompt_tokens"], c["output_tokens"]) for c in report["cases"]] == [
        (20, 1),
        (20, 3),
        (40, 1),
        (40, 3),
    ]
    for case in report["cases"]:
        assert case["cached_tokens"] < 16  # no block is found again
        assert len(case["samples"]) == 2
        assert 0 < case["ttft_ms"]["low"] <= case["ttft_ms"]["median"] <= case["ttft_ms"]["high"]
        assert (case["tpot_ms"] is None) == (case["output_tokens"] == 1)


def test_peers_measures_ours_where_nobody_else_is(smollm2_path: Path, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    command = [str(Path(sys.executable).with_name("foreword")), "bench", "peers"]
    command += ["--model", str(smollm2_path), "--json", str(report_file), "--num-threads", "1"]
    command += ["--prompt-lengths", "20", "--output-tokens", "3", "--repeats", "2"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PATH": str(tmp_path), "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    assert "llama-bench is no program that can be run" in done.stdout

    report = json.loads(report_file.read_text())
    assert report["limits"]["threads"] == 1
    (ours,) = report["engines"]
    (case,) = ours["cases"]
    assert (ours["name"], len(case["samples"]), case["our_ttft_ratio"]) == ("foreword", 2, 1.0)
    for share in (case["prefill_of_limit"], case["decode_of_limit"]):
        assert share is None or share > 0  # below 1, but where the machine is busy now and then
