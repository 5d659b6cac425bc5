"""The CPU backend on tiny models of odd shapes, against plain numpy and against itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.gold_model import GoldModel
from support.steps import ByHand, every
from support.tiny import TinyModel

from foreword import _core
from foreword.backends.cpu.backend import CpuBackend
from foreword.core.step import SequenceStep, StepPlan
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

MODELS = {
    "gqa": TinyModel(heads=6, kv_heads=2, hidden=96, head_dim=32),
    "mha, untied": TinyModel(heads=2, kv_heads=2, head_dim=80, tied=False, vocab=64),
    "mqa, f16": TinyModel(heads=5, kv_heads=1, head_dim=24, dtype="F16", embedding_dtype="BF16"),
    "bf16, scaled rope": TinyModel(dtype="BF16", rope_scale=4.0, rope_factors=True),
    "partial rope": TinyModel(head_dim=32, rope_dim=12, layers=3),
    "quantised": TinyModel(
        hidden=96, heads=3, head_dim=32, mlp=160, dtype="Q5_1", embedding_dtype="Q8_0"
    ),
    "gemma3": TinyModel("gemma3", layers=7, heads=4, head_dim=32, window=20),
    "gemma3, q4": TinyModel(
        "gemma3", hidden=64, layers=6, heads=2, kv_heads=2, head_dim=32, mlp=96, dtype="Q4_0"
    ),
}
PROMPT = [(7 * i * i + 3 * i) % 64 for i in range(75)]


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def file(request: pytest.FixtureRequest, tmp_path: Path) -> GGUFFile:
    return GGUFFile.open(request.param.write(tmp_path))


def by_hand(
    file: GGUFFile, *, compute: str = "float32", isa: str = "auto", num_threads: int = 2
) -> ByHand:
    spec = load_spec(file)
    return ByHand(CpuBackend(file, spec, compute=compute, isa=isa, num_threads=num_threads))


@pytest.mark.parametrize("isa", _core.available_isas())
def test_logits_are_those_of_plain_numpy(file: GGUFFile, isa: str) -> None:
    expected = GoldModel(file, load_spec(file)).logits(PROMPT)
    (got,) = by_hand(file, isa=isa).logits([PROMPT], [])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("isa", _core.available_isas())
def test_int8_is_near(file: GGUFFile, isa: str) -> None:
    expected = GoldModel(file, load_spec(file)).logits(PROMPT)
    (got,) = by_hand(file, compute="int8", isa=isa).logits([PROMPT], [])
    error = np.sqrt(((got - expected) ** 2).mean() / (expected**2).mean())
    assert error < 0.08


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_logits_depend_on_nothing_but_the_sequence(file: GGUFFile, compute: str) -> None:
    hand = by_hand(file, compute=compute)
    (whole,) = hand.logits([PROMPT], [])
    for size in (1, 7, 16, 64):
        (got,) = hand.logits([PROMPT], every(size, len(PROMPT)))
        np.testing.assert_array_equal(got, whole, err_msg=f"chunks of {size}")
    others = [PROMPT[::-1], PROMPT, PROMPT[:1], PROMPT[5:30]]
    for cuts in ([], [9], every(20, len(PROMPT))):
        np.testing.assert_array_equal(hand.logits(others, cuts)[1], whole, err_msg="in a batch")
    crowd = hand.logits([PROMPT[i % 50 :] for i in range(70)], [30])  # more than any tile
    np.testing.assert_array_equal(crowd[50], whole, err_msg="among 70")
    (alone,) = by_hand(file, compute=compute, num_threads=1).logits([PROMPT], [])
    np.testing.assert_array_equal(alone, whole, err_msg="one thread")


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_a_row_of_logits_is_the_same_whichever_others_are_asked_for(
    tmp_path: Path, compute: str
) -> None:
    """The last layer is computed for the wanted rows only."""
    file = GGUFFile.open(MODELS["gemma3"].write(tmp_path))
    hand = by_hand(file, compute=compute)
    (whole,) = hand.logits([PROMPT], [])
    plan = StepPlan(
        (
            SequenceStep(0, PROMPT, 0, hand.blocks_for(75)),
            SequenceStep(1, PROMPT[:3], 0, hand.blocks_for(3)),
        )
    )
    for rows in ([74], [0, 3, 40, 41, 76], [75], []):
        got = hand.backend.logits(plan, rows)
        np.testing.assert_array_equal(got, whole[[row % 75 for row in rows]])
