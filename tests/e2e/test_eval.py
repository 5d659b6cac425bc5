"""`foreword eval` on the real models, and the quality that int8 must keep."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreword.bench.prompts import corpus_text
from foreword.config.engine import EngineOptions
from foreword.core.params import SamplingParams
from foreword.engine.llm import LLM


def evaluate(model: Path, report_file: Path, *arguments: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("foreword")), "eval", "--model", str(model)]
    command += ["--json", str(report_file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "KL to reference" in done.stdout
    report: dict[str, Any] = json.loads(report_file.read_text())
    return report


def test_perplexity_is_that_of_the_prompt_logprobs(smollm2_path: Path, tmp_path: Path) -> None:
    arguments = ("--windows", "2", "--window-tokens", "48", "--set", "num_threads=1")
    result = evaluate(smollm2_path, tmp_path / "eval.json", *arguments)["result"]
    assert (result["tokens"], result["kl_max"], result["same_top_share"]) == (94, 0.0, 1.0)

    llm = LLM(str(smollm2_path), num_blocks=16, num_threads=1)
    tokens = llm.tokenizer.encode(corpus_text(), add_bos=False)
    windows = [tokens[:48], tokens[len(tokens) // 2 :][:48]]
    outputs = llm.generate(windows, SamplingParams(max_tokens=1, prompt_logprobs=0))
    logprobs = [
        entry.logprob for output in outputs for entry in (output.prompt_logprobs or ()) if entry
    ]
    assert len(logprobs) == 94
    assert result["perplexity"] == pytest.approx(float(np.exp(-np.mean(logprobs))), rel=1e-5)


@pytest.mark.skipif(
    "compute" not in {field.name for field in fields(EngineOptions)},
    reason="the engine computes in float32 alone",
)
@pytest.mark.parametrize(("model", "size"), [("smollm2_path", 512), ("gemma_path", 128)])
def test_int8_is_no_worse_than_other_engines_int8(
    model: str, size: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What llama.cpp's own arithmetic costs on SmolLM2: 0.0029 to 0.0031 nats, 96.6 %."""
    arguments = ("--windows", "2", "--window-tokens", str(size), "--set", "compute=int8")
    arguments += ("--reference", "compute=float32")
    path = request.getfixturevalue(model)
    result = evaluate(path, tmp_path / "eval.json", *arguments)["result"]
    assert 0 < result["kl_mean"] <= 0.003
    assert abs(result["perplexity_change"]) <= 0.005
    assert result["same_top_share"] >= 0.966
