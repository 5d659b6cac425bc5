"""Every kernel of every instruction set against its plain twin, and itself in other shapes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from support.arrays import Floats, bits, normal

from foreword import _core
from foreword.bench.cases import FLOAT_TAILS, WIDTHS

REFERENCE = _core.Kernels("reference")
LANES = 16


def up_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


# Weights


@pytest.mark.parametrize("dtype", [0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 30])
def test_dequantize(kernels: _core.Kernels, rng: np.random.Generator, dtype: int) -> None:
    _, block_elements, block_bytes = _core.dtype_info(dtype)
    for blocks in (1, 3, 37):
        data = rng.integers(0, 256, blocks * block_bytes, np.uint8)
        got, expected = np.empty((2, blocks * block_elements), np.float32)
        kernels.dequantize(dtype, data, got)
        REFERENCE.dequantize(dtype, data, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(got), ~numbers)
        np.testing.assert_array_equal(bits(got[numbers]), bits(expected[numbers]))


def test_dequantize_every_half_float(kernels: _core.Kernels) -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    got = np.empty(halves.size, np.float32)
    kernels.dequantize(int(gguf.GGMLQuantizationType.F16), halves.view(np.uint8), got)
    np.testing.assert_array_equal(got, halves.view(np.float16).astype(np.float32))


# Products


def product(kernels: _core.Kernels, x: Floats, w: Floats, start: Floats | None = None) -> Floats:
    """x · wᵀ (+ start) of unpadded operands."""
    k = up_to(x.shape[1], LANES)
    padded_x = np.zeros((len(x), k), np.float32)
    padded_w = np.zeros((up_to(len(w), 4), k), np.float32)
    padded_x[:, : x.shape[1]] = x
    padded_w[: len(w), : w.shape[1]] = w
    out = np.full((len(x), len(w)), np.nan, np.float32) if start is None else start.copy()
    kernels.matmul(padded_x, padded_w, out, start is not None)
    return out


@pytest.mark.parametrize(("tokens", "rows", "k"), FLOAT_TAILS)
def test_matmul(
    kernels: _core.Kernels, rng: np.random.Generator, tokens: int, rows: int, k: int
) -> None:
    x, w, start = normal(rng, tokens, k), normal(rng, rows, k), normal(rng, tokens, rows)
    tolerance = 1e-6 * k**0.5
    np.testing.assert_allclose(
        product(kernels, x, w), product(REFERENCE, x, w), rtol=1e-5, atol=tolerance
    )
    np.testing.assert_allclose(
        product(kernels, x, w, start), product(REFERENCE, x, w, start), rtol=1e-5, atol=tolerance
    )


def test_a_product_is_the_same_in_a_tile_of_any_shape(
    kernels: _core.Kernels, rng: np.random.Generator
) -> None:
    x, w = normal(rng, 11, 200), normal(rng, 9, 200)
    whole = product(kernels, x, w)
    for tokens in range(1, 11):
        np.testing.assert_array_equal(bits(product(kernels, x[-tokens:], w)), bits(whole[-tokens:]))
    np.testing.assert_array_equal(
        bits(product(kernels, x, np.ascontiguousarray(w[3:8]))),
        bits(np.ascontiguousarray(whole[:, 3:8])),
    )


# One token at a time


@pytest.mark.parametrize("n", WIDTHS)
def test_rms_norm(kernels: _core.Kernels, rng: np.random.Generator, n: int) -> None:
    x, weight = normal(rng, n), normal(rng, n)
    for scale in (1.0, 1e-6, 1e6):
        got, expected = np.empty((2, n), np.float32)
        kernels.rms_norm(x * np.float32(scale), weight, 1e-5, got)
        REFERENCE.rms_norm(x * np.float32(scale), weight, 1e-5, expected)
        np.testing.assert_allclose(got, expected, rtol=2e-6)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("pairs", [1, 5, 16, 32, 40])
def test_rotate(
    kernels: _core.Kernels, rng: np.random.Generator, pairs: int, interleaved: bool
) -> None:
    angles = normal(rng, pairs)
    got = normal(rng, 2 * pairs + 6)  # six channels that do not turn
    expected = got.copy()
    kernels.rotate(got, np.cos(angles), np.sin(angles), interleaved)
    REFERENCE.rotate(expected, np.cos(angles), np.sin(angles), interleaved)
    np.testing.assert_array_equal(bits(got), bits(expected))


@pytest.mark.parametrize("activation", list(_core.Activation), ids=lambda a: a.name)
@pytest.mark.parametrize("n", [1, 15, 16, 40])
def test_gate(
    kernels: _core.Kernels, rng: np.random.Generator, activation: _core.Activation, n: int
) -> None:
    up = normal(rng, n)
    for scale in (0.1, 1, 10, 1000):
        got = (scale * rng.standard_normal(n)).astype(np.float32)
        expected = got.copy()
        kernels.gate(activation, got, up)
        REFERENCE.gate(activation, expected, up)
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-7)


def test_fused_instruction_sets_agree_to_the_bit(rng: np.random.Generator) -> None:
    """AVX2 and AVX-512 do the same operations in the same order."""
    if not {"avx2", "avx512"} <= set(_core.available_isas()):
        pytest.skip("this machine has not both")
    narrow, wide = _core.Kernels("avx2"), _core.Kernels("avx512")
    x, w = normal(rng, 7, 300), normal(rng, 10, 300)
    np.testing.assert_array_equal(bits(product(narrow, x, w)), bits(product(wide, x, w)))


@pytest.mark.parametrize("name", ["", "AVX2", "sse9", "auto "])
def test_unknown_instruction_set(name: str) -> None:
    with pytest.raises(ValueError, match="cannot run"):
        _core.Kernels(name)
