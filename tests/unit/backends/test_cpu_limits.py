"""Shapes, lengths and magnitudes at the edge of what models have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.gguf_writer import Tensor
from support.gold_model import GoldModel
from support.steps import ByHand, every
from support.tiny import TinyModel

from foreword.backends.cpu.backend import CpuBackend
from foreword.core.step import SequenceStep, StepPlan
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

INT8 = {"compute": "int8", "kv_cache_dtype": "int8"}
FLOAT32 = {"compute": "float32", "kv_cache_dtype": "float32"}


def hand_for(file: GGUFFile, arithmetic: dict[str, str], num_blocks: int = 64) -> ByHand:
    backend = CpuBackend(file, load_spec(file), num_threads=2, **arithmetic)
    return ByHand(backend, num_blocks)


def error_of(got: np.ndarray, expected: np.ndarray) -> float:
    """Root of the mean square, relative."""
    return float(np.sqrt(((got - expected) ** 2).mean() / (expected**2).mean()))


def prompt_of(length: int, vocab: int) -> list[int]:
    return np.random.default_rng(length).integers(0, vocab, length).tolist()


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("hidden", [32, 352])
@pytest.mark.parametrize(("arithmetic", "most"), [(FLOAT32, 1e-5), (INT8, 0.08)])
def test_head_and_hidden_sizes(
    tmp_path: Path, head_dim: int, hidden: int, arithmetic: dict[str, str], most: float
) -> None:
    """The vocabulary is one token over whole panels, or over whole vectors in float32."""
    model = TinyModel(
        hidden=hidden,
        heads=4,
        head_dim=head_dim,
        mlp=hidden + 32,
        vocab=129,
        layers=1,
        dtype="Q8_0",
    )
    file = GGUFFile.open(model.write(tmp_path))
    prompt = prompt_of(40, model.vocab)
    hand = hand_for(file, arithmetic)
    (got,) = hand.logits([prompt], [])
    assert error_of(got, GoldModel(file, load_spec(file)).logits(prompt)) < most
    np.testing.assert_array_equal(hand.logits([prompt], every(9, 40))[0], got)


@pytest.mark.parametrize(("arithmetic", "most"), [(FLOAT32, 5e-4), (INT8, 0.08)])
def test_a_context_of_32k_tokens(tmp_path: Path, arithmetic: dict[str, str], most: float) -> None:
    """Rotary frequencies are float32: so far out, angles are a thousandth off."""
    model = TinyModel(hidden=32, heads=2, head_dim=16, mlp=32, layers=1)
    file = GGUFFile.open(model.write(tmp_path))
    prompt = prompt_of(32768, model.vocab)
    hand = hand_for(file, arithmetic, num_blocks=2048)
    table = hand.blocks_for(len(prompt))
    for start in range(0, len(prompt), 2048):
        step = SequenceStep(0, prompt[start : start + 2048], start, table)
        got = hand.backend.logits(StepPlan((step,)), range(2040, 2048))
    expected = GoldModel(file, load_spec(file)).logits(prompt, last=8)
    assert error_of(got, expected) < most


@pytest.mark.parametrize("arithmetic", [FLOAT32, INT8], ids=["float32", "int8"])
@pytest.mark.parametrize("scale", [1e-30, 1e-38, 1e-42, 0.0])
def test_activations_that_almost_vanish(
    tmp_path: Path, arithmetic: dict[str, str], scale: float
) -> None:
    """Norms this small make inputs of linear layers that are subnormal, or zero."""
    model = TinyModel(hidden=64, heads=2, head_dim=32, mlp=96)
    tensors = model.tensors()
    for name in [name for name in tensors if "_norm" in name and name.startswith("blk.")]:
        tensors[name] = Tensor.f32(np.full(model.hidden, scale, np.float32))
    file = GGUFFile.open(model.write(tmp_path, tensors=tensors))
    prompt = prompt_of(20, model.vocab)
    (got,) = hand_for(file, arithmetic).logits([prompt], [])
    assert error_of(got, GoldModel(file, load_spec(file)).logits(prompt)) < 0.02


def test_a_process_that_may_use_one_core_runs_one_thread(tmp_path: Path) -> None:
    path = TinyModel().write(tmp_path)
    code = (
        "from foreword.backends.cpu.backend import CpuBackend\n"
        "from foreword.models.load import load_spec\n"
        "from foreword.weights.gguf import GGUFFile\n"
        f"file = GGUFFile.open({str(path)!r})\n"
        "print(CpuBackend(file, load_spec(file)).describe()['num_threads'])\n"
    )
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "1"
