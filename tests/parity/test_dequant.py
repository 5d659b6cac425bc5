"""Dequantising equals the `gguf` package's, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from foreword import _core

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
TYPES += ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
QUANTIZABLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16"]


def assert_same_bits(name: str, data: NDArray[np.uint8]) -> None:
    qtype = gguf.GGMLQuantizationType[name]
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    n = data.size // block_bytes * block_elements
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, qtype).reshape(-1)
    got = np.asarray(_core.dequantize(int(qtype), data, n))
    assert got.dtype == np.float32
    assert got.shape == (n,)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(
        got.view(np.uint32)[numbers], expected.view(np.uint32)[numbers], err_msg=name
    )


@pytest.mark.parametrize("name", TYPES)
def test_sizes_are_ggml_s(name: str) -> None:
    qtype = gguf.GGMLQuantizationType[name]
    assert _core.dtype_info(int(qtype)) == (name, *gguf.GGML_QUANT_SIZES[qtype])


def test_other_types_are_unknown() -> None:
    known = {int(gguf.GGMLQuantizationType[name]) for name in TYPES}
    assert {t for t in range(1000) if _core.dtype_info(t) is not None} == known
    assert _core.dtype_info(2**32 - 1) is None


@pytest.mark.parametrize("name", TYPES)
def test_any_bytes(name: str) -> None:
    """Random bytes reach every code, and scales that are subnormal, infinite or NaN."""
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    rng = np.random.default_rng(7)
    assert_same_bits(name, rng.integers(0, 256, 2000 * block_bytes, np.uint8))
    assert_same_bits(name, np.zeros(block_bytes, np.uint8))


@pytest.mark.parametrize("name", QUANTIZABLE)
def test_real_weights(name: str) -> None:
    weights = np.random.default_rng(11).normal(0, 0.05, (64, 256)).astype(np.float32)
    quantized = gguf.quantize(weights, gguf.GGMLQuantizationType[name]).reshape(-1)
    assert_same_bits(name, quantized)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_16_bit_float(name: str) -> None:
    assert_same_bits(name, np.arange(2**16, dtype=np.uint16).view(np.uint8))


def test_a_block_may_stand_at_any_address() -> None:
    data = np.random.default_rng(3).integers(0, 256, 4 * 144 + 1, np.uint8)
    q4_k = int(gguf.GGMLQuantizationType.Q4_K)
    np.testing.assert_array_equal(
        _core.dequantize(q4_k, data[1:], 1024), _core.dequantize(q4_k, data[1:].copy(), 1024)
    )


@pytest.mark.parametrize(
    ("ggml_type", "nbytes", "n"), [(999, 4, 1), (3, 20, 31), (3, 19, 32), (3, 20, 2**63)]
)
def test_refuses_what_does_not_fit(ggml_type: int, nbytes: int, n: int) -> None:
    with pytest.raises(ValueError):
        _core.dequantize(ggml_type, np.zeros(nbytes, np.uint8), n)
