"""Packed weights against the stored ones; every integer kernel against its twin, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from support.quantised import DTYPES, block_elements, number, random_matrix

from foreword import _core
from foreword.bench.cases import GROUPED_TAILS, ISAS, LAYER_MATRICES, MatrixShape

Floats = NDArray[np.float32]

REFERENCE = _core.Kernels("reference")
GROUP, COLUMNS = 32, 32

# bits, zero, minima, floats for scales: as csrc/include/foreword/panel.h says
EXACT = {
    "Q4_0": (4, 8, False, False),
    "Q4_1": (4, 0, True, False),
    "Q5_0": (8, 16, False, False),
    "Q5_1": (8, 0, True, False),
    "Q8_0": (8, 128, False, False),
    "IQ4_NL": (8, 128, False, False),
    "Q4_K": (4, 0, True, True),
    "Q5_K": (8, 0, True, True),
}
ROUNDED = {
    "F32": (8, 0, True, True),
    "BF16": (8, 0, True, True),
    "F16": (8, 0, True, False),
    "Q2_K": (8, 0, True, False),
    "Q3_K": (8, 0, True, False),
    "Q6_K": (8, 0, True, False),
}
FORMATS = EXACT | ROUNDED


@pytest.fixture(params=ISAS)
def kernels(request: pytest.FixtureRequest) -> _core.Kernels:
    if request.param not in _core.available_isas():
        pytest.skip(f"this machine has no {request.param}")
    return _core.Kernels(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


def pack(dtype: str, data: NDArray[np.uint8], rows: int, cols: int) -> NDArray[np.uint8]:
    panels = np.empty(_core.panel_bytes(number(dtype), rows, cols), np.uint8)
    _core.pack_panels(number(dtype), data, rows, cols, panels)
    return panels


def unpack(dtype: str, panels: NDArray[np.uint8], rows: int, cols: int) -> NDArray[np.float64]:
    """The weights that panels stand for."""
    bits, zero, minima, wide = FORMATS[dtype]
    scale = np.float32 if wide else np.float16
    weight_bytes, scale_bytes = GROUP * COLUMNS * bits // 8, COLUMNS * np.dtype(scale).itemsize
    record = weight_bytes + (1 + minima) * scale_bytes
    records = panels.reshape(-(-rows // COLUMNS), -(-cols // GROUP), record)
    packed = records[..., :weight_bytes].reshape(*records.shape[:2], -1, COLUMNS, 4)
    q = np.concatenate([packed & 15, packed >> 4], axis=2) if bits == 4 else packed
    scales = [
        records[..., at : at + scale_bytes].copy().view(scale).astype(np.float64)
        for at in range(weight_bytes, record, scale_bytes)
    ]
    weights = scales[0][:, :, None, :, None] * (q.astype(np.float64) - zero)
    if minima:
        weights += scales[1][:, :, None, :, None]
    by_row = weights.transpose(0, 3, 1, 2, 4)  # panel, column, group, four, one
    return by_row.reshape(len(records) * COLUMNS, -1)[:rows, :cols]


def quantize(kernels: _core.Kernels, x: Floats) -> tuple[NDArray[np.int8], Floats]:
    tokens, groups = len(x), -(-x.shape[1] // GROUP)
    values = np.full((tokens, groups * GROUP), 99, np.int8)
    scales = np.full((tokens, groups, 3), np.nan, np.float32)
    kernels.quantize(x, values, scales)
    return values, scales


def quantize_rest(
    kernels: _core.Kernels, x: Floats
) -> tuple[tuple[NDArray[np.int8], Floats], tuple[NDArray[np.int8], Floats]]:
    first, second = quantize(kernels, x), quantize(kernels, x)
    kernels.quantize(x, *first, *second)
    return first, second


def product(
    kernels: _core.Kernels,
    dtype: str,
    panels: NDArray[np.uint8],
    x: tuple[NDArray[np.int8], Floats],
    start: Floats,
    accumulate: bool,
) -> Floats:
    out = start.copy()
    kernels.int8_matmul(number(dtype), panels, *x, out, accumulate)
    return out


def test_every_type_has_a_format() -> None:
    assert set(FORMATS) == set(DTYPES)


# Weights


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (32, 2), (33, 1), (70, 3)])
def test_panels_hold_the_files_own_integers(
    rng: np.random.Generator, dtype: str, rows: int, blocks: int
) -> None:
    cols = blocks * block_elements(dtype)
    data = random_matrix(rng, dtype, rows, cols)
    stored = np.asarray(_core.dequantize(number(dtype), data, rows * cols)).reshape(rows, cols)
    got = unpack(dtype, pack(dtype, data, rows, cols), rows, cols).astype(np.float32)
    # one rounding for `got`, two (product and sum) for `stored`: no more than that apart
    largest = np.abs(stored).max()
    np.testing.assert_allclose(got, stored, rtol=2e-7, atol=2e-7 * largest)


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize(("rows", "cols"), [(5, 256), (40, 512)])
def test_other_types_are_rounded_to_eight_bits(
    rng: np.random.Generator, dtype: str, rows: int, cols: int
) -> None:
    data = random_matrix(rng, dtype, rows, cols)
    stored = np.asarray(_core.dequantize(number(dtype), data, rows * cols)).reshape(rows, -1, GROUP)
    got = unpack(dtype, pack(dtype, data, rows, cols), rows, cols).reshape(stored.shape)
    step = np.ptp(stored, axis=2, keepdims=True) / 255
    slack = 0.51 if FORMATS[dtype][3] else 0.7  # half floats move the grid's ends a little
    assert (np.abs(got - stored) <= slack * step).all()


def test_inputs_beyond_the_last_group_weigh_nothing(rng: np.random.Generator) -> None:
    data = random_matrix(rng, "F32", 3, 72)
    stored = data.view(np.float32).reshape(3, 72)
    got = unpack("F32", pack("F32", data, 3, 72), 3, 72)
    np.testing.assert_allclose(got, stored, atol=0.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0", "Q4_K"])
def test_weights_that_are_not_finite(rng: np.random.Generator, dtype: str, bad: float) -> None:
    data = random_matrix(rng, dtype, 2, 256).copy()
    scale = np.array([bad], np.float32 if dtype == "F32" else np.float16).view(np.uint8)
    data[: len(scale)] = scale
    with pytest.raises(ValueError, match="not finite"):
        pack(dtype, data, 2, 256)


def test_sizes_that_do_not_fit(rng: np.random.Generator) -> None:
    data = random_matrix(rng, "Q8_0", 4, 64)
    panels = np.empty(_core.panel_bytes(number("Q8_0"), 4, 64), np.uint8)
    for rows, cols, out in ((4, 32, panels), (5, 64, panels), (4, 64, panels[1:]), (4, 63, panels)):
        with pytest.raises(ValueError, match=r"fit|hold"):
            _core.pack_panels(number("Q8_0"), data, rows, cols, out)


# Activations


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 72, 576])
def test_quantize(kernels: _core.Kernels, rng: np.random.Generator, n: int) -> None:
    for scale in (1.0, 1e-3, 1e8, 1e-29, 1e-32, 0.0):
        x = (scale * rng.standard_normal((3, n)) ** 3).astype(np.float32)
        values, scales = quantize(kernels, x)
        expected = quantize(REFERENCE, x)
        np.testing.assert_array_equal(values, expected[0])
        np.testing.assert_array_equal(scales.view(np.uint32), expected[1].view(np.uint32))
        got = (values.reshape(3, -1, GROUP) * scales[..., :1]).reshape(3, -1)[:, :n]
        step = np.abs(x).max(axis=1, keepdims=True) / 127
        assert (np.abs(got - x) <= 0.51 * step + 1e-30).all()


@pytest.mark.parametrize("n", [1, 32, 96, 135, 576, 2048])
def test_quantize_the_rest(kernels: _core.Kernels, rng: np.random.Generator, n: int) -> None:
    x = rng.standard_normal((3, n)).astype(np.float32) ** 3
    parts, expected = quantize_rest(kernels, x), quantize_rest(REFERENCE, x)
    got = np.zeros(x.shape, np.float64)
    for (values, scales), (expected_values, expected_scales) in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(values, expected_values)
        np.testing.assert_array_equal(scales.view(np.uint32), expected_scales.view(np.uint32))
        got += (values.reshape(3, -1, GROUP) * scales[..., :1].astype(float)).reshape(3, -1)[:, :n]
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    assert (np.abs(got - x) <= 0.51 * step / 254).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 31, 40])
def test_a_value_that_is_no_number_shows(kernels: _core.Kernels, bad: float, place: int) -> None:
    x = np.ones((1, 64), np.float32)
    x[0, place] = bad
    values, scales = quantize(kernels, x)
    np.testing.assert_array_equal(values, quantize(REFERENCE, x)[0])
    group = place // GROUP
    assert not np.isfinite(scales[0, group, 0])
    assert np.isnan(scales[0, group, 1])
    assert np.isfinite(scales[0, 1 - group, :2]).all()


# Products


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("tokens", "rows", "blocks"), GROUPED_TAILS)
def test_int8_matmul(
    kernels: _core.Kernels,
    rng: np.random.Generator,
    dtype: str,
    tokens: int,
    rows: int,
    blocks: int,
) -> None:
    cols = blocks * max(block_elements(dtype), GROUP)
    panels = pack(dtype, random_matrix(rng, dtype, rows, cols), rows, cols)
    x = quantize(REFERENCE, rng.standard_normal((tokens, cols)).astype(np.float32))
    start = rng.standard_normal((tokens, rows)).astype(np.float32)
    for accumulate in (False, True):
        got = product(kernels, dtype, panels, x, start, accumulate)
        expected = product(REFERENCE, dtype, panels, x, start, accumulate)
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("matrix", LAYER_MATRICES, ids=lambda m: f"{m.name}, {m.dtype}")
def test_int8_matmul_of_real_models(
    kernels: _core.Kernels, rng: np.random.Generator, matrix: MatrixShape
) -> None:
    _, dtype, rows, cols = matrix
    panels = pack(dtype, random_matrix(rng, dtype, rows, cols), rows, cols)
    for tokens in (1, 7):
        x = quantize(REFERENCE, rng.standard_normal((tokens, cols)).astype(np.float32))
        start = np.zeros((tokens, rows), np.float32)
        got = product(kernels, dtype, panels, x, start, False)
        expected = product(REFERENCE, dtype, panels, x, start, False)
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_twin_multiplies(rng: np.random.Generator, dtype: str) -> None:
    rows, cols, tokens = 37, 256, 4
    panels = pack(dtype, random_matrix(rng, dtype, rows, cols), rows, cols)
    x = quantize(REFERENCE, rng.standard_normal((tokens, cols)).astype(np.float32))
    activations = (x[0].reshape(tokens, -1, GROUP) * x[1][..., :1].astype(np.float64)).reshape(
        tokens, cols
    )
    expected = activations @ unpack(dtype, panels, rows, cols).T
    got = product(REFERENCE, dtype, panels, x, np.zeros((tokens, rows), np.float32), False)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["Q4_0", "Q8_0", "Q5_1"])
def test_the_largest_integers_do_not_overflow(kernels: _core.Kernels, dtype: str) -> None:
    """All weights and activations at their ends: where sixteen bits would be too few."""
    block_bytes = _core.dtype_info(number(dtype))[2]
    for fill in (0xFF, 0x00, 0x80, 0x7F):
        blocks = np.full((COLUMNS, block_bytes), fill, np.uint8)
        for at in (0, 2) if dtype == "Q5_1" else (0,):
            blocks[:, at : at + 2] = np.float16([1.0]).view(np.uint8)
        panels = pack(dtype, blocks.reshape(-1), COLUMNS, GROUP)
        for sign in (1, -1):
            x = quantize(REFERENCE, np.full((6, GROUP), sign, np.float32))
            start = np.zeros((6, COLUMNS), np.float32)
            np.testing.assert_array_equal(
                product(kernels, dtype, panels, x, start, False),
                product(REFERENCE, dtype, panels, x, start, False),
            )
