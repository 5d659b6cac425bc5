"""Keys and values in fewer bits: blocks shrink, logits move little, and equality stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.steps import ByHand, every
from support.tiny import TinyModel

from foreword import _core
from foreword.backends.cpu.backend import CpuBackend
from foreword.core.step import SequenceStep, StepPlan
from foreword.errors import BackendError
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

MODELS = {
    "grouped": TinyModel(heads=6, kv_heads=2, head_dim=32),
    "windows": TinyModel("gemma3", hidden=64, layers=6, heads=2, head_dim=80, window=24),
}
PROMPT = [(7 * i * i + 3 * i) % 101 for i in range(150)]
DTYPES = ["float16", "int8"]


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def file(request: pytest.FixtureRequest, tmp_path: Path) -> GGUFFile:
    return GGUFFile.open(request.param.write(tmp_path))


def backend_for(file: GGUFFile, dtype: str, **options: object) -> CpuBackend:
    return CpuBackend(file, load_spec(file), kv_cache_dtype=dtype, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "least", "most"), [("float16", 1e-7, 0.01), ("int8", 1e-4, 0.2)])
def test_logits_are_near_those_of_float32(
    file: GGUFFile, dtype: str, least: float, most: float
) -> None:
    (exact,) = ByHand(backend_for(file, "float32")).logits([PROMPT], [])
    (got,) = ByHand(backend_for(file, dtype)).logits([PROMPT], [])
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert least < error < most


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_depend_on_nothing_but_the_sequence(file: GGUFFile, dtype: str) -> None:
    hand = ByHand(backend_for(file, dtype, num_threads=2))
    (whole,) = hand.logits([PROMPT], [])
    for size in (1, 7, 64):
        (got,) = hand.logits([PROMPT], every(size, len(PROMPT)))
        np.testing.assert_array_equal(got, whole, err_msg=f"chunks of {size}")
    others = [PROMPT[::-1], PROMPT, PROMPT[:1], PROMPT[5:30]]
    np.testing.assert_array_equal(hand.logits(others, [70])[1], whole, err_msg="in a batch")
    alone = ByHand(backend_for(file, dtype, num_threads=1))
    np.testing.assert_array_equal(alone.logits([PROMPT], [])[0], whole, err_msg="one thread")


def test_int8_is_the_same_to_the_bit_on_every_instruction_set(file: GGUFFile) -> None:
    """Up to the float kernels around it, which are alike on the fused sets only."""
    fused = [isa for isa in _core.available_isas() if isa.startswith("avx")]
    if len(fused) < 2:
        pytest.skip("this machine has not two of them")
    first, *rest = (
        ByHand(backend_for(file, "int8", isa=isa)).logits([PROMPT], []) for isa in fused
    )
    for other in rest:
        np.testing.assert_array_equal(other[0], first[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_move_whole(file: GGUFFile, dtype: str) -> None:
    backend = backend_for(file, dtype)
    backend.allocate(40)
    table = tuple(range(10))
    (expected,) = backend.logits(StepPlan((SequenceStep(0, PROMPT, 0, table),)), [149])
    last = SequenceStep(0, PROMPT[149:], 149, tuple(range(10, 20)))
    copies = tuple((block, block + 10) for block in table)
    np.testing.assert_array_equal(backend.logits(StepPlan((last,), copies), [0])[0], expected)
    for block in table:
        backend.write_block(block + 20, backend.read_block(block))
    last = SequenceStep(0, PROMPT[149:], 149, tuple(range(20, 30)))
    np.testing.assert_array_equal(backend.logits(StepPlan((last,)), [0])[0], expected)


def test_blocks_take_the_bytes_of_their_type(file: GGUFFile) -> None:
    sizes = [backend_for(file, dtype).block_bytes for dtype in ("float32", "float16", "int8")]
    assert sizes[0] == 2 * sizes[1]
    assert sizes[1] < 2 * sizes[2] < 1.3 * sizes[1]  # int8 adds its scales


def test_unknown_type(file: GGUFFile) -> None:
    with pytest.raises(BackendError, match="fp8"):
        backend_for(file, "fp8")
