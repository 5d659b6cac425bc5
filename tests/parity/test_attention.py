"""Attention over every type of keys and values: against its twin, and alone as in company."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from support.arrays import Floats, bits, normal

from foreword import _core
from foreword.bench.cases import ATTENTION_TAILS, KV_DTYPES

Ints = NDArray[np.int32]

REFERENCE = _core.Kernels("reference")
BLOCK = 16


@dataclass
class Cache:
    """One head's keys and values [tokens, head_dim], in blocks that stand in scrambled order."""

    dtype: str
    keys: Floats
    values: Floats
    table: Ints
    pool: NDArray[np.uint8]

    @classmethod
    def fill(
        cls,
        kernels: _core.Kernels,
        dtype: str,
        rng: np.random.Generator,
        tokens: int,
        head_dim: int,
    ) -> Cache:
        keys, values = normal(rng, tokens, head_dim), normal(rng, tokens, head_dim)
        values *= np.exp(normal(rng, tokens, 1))  # sizes differ from token to token
        blocks = -(-tokens // BLOCK)
        table = rng.permutation(blocks + 1)[:blocks].astype(np.int32)
        pool = np.zeros((blocks + 1, _core.kv_head_bytes(dtype, head_dim) + 64), np.uint8)
        for t in range(tokens):
            kernels.write_kv(dtype, pool, table[t // BLOCK], t % BLOCK, keys[t], values[t])
        return cls(dtype, keys, values, table, pool)

    def attend(self, kernels: _core.Kernels, q: Floats, positions: Ints, window: int = 0) -> Floats:
        out = np.full_like(q, np.nan)
        scale = q.shape[2] ** -0.5
        kernels.attention(q, self.dtype, self.pool, self.table, positions, window, scale, out)
        return out


def exact(cache: Cache, q: Floats, positions: Ints, window: int = 0) -> NDArray[np.float64]:
    """Plain softmax attention in float64."""
    scores = np.einsum("thd,sd->ths", q.astype(np.float64), cache.keys) * q.shape[2] ** -0.5
    distance = positions[:, None] - np.arange(len(cache.keys))[None, :]
    seen = (distance >= 0) & (distance < (window or len(cache.keys)))
    scores = np.where(seen[:, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("ths,sd->thd", weights / weights.sum(axis=-1, keepdims=True), cache.values)


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize(("head_dim", "group", "where", "window"), ATTENTION_TAILS)
def test_attention(
    kernels: _core.Kernels,
    rng: np.random.Generator,
    dtype: str,
    head_dim: int,
    group: int,
    where: range,
    window: int,
) -> None:
    positions = np.array(where, np.int32)
    cache = Cache.fill(kernels, dtype, rng, positions[-1] + 1, head_dim)
    q = 3 * normal(rng, len(positions), group, head_dim)
    got = cache.attend(kernels, q, positions, window)
    expected = cache.attend(REFERENCE, q, positions, window)
    if dtype == "int8":
        np.testing.assert_array_equal(bits(got), bits(expected))
    else:
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6 * np.abs(cache.values).max())
    for t in range(len(positions)):  # alone, and so from its own first block: the same bits
        alone = cache.attend(kernels, q[t : t + 1], positions[t : t + 1], window)
        np.testing.assert_array_equal(bits(alone[0]), bits(got[t]))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3), ("int8", 0.02)]
)
def test_the_twin_is_attention(rng: np.random.Generator, dtype: str, tolerance: float) -> None:
    positions = np.arange(60, 70, dtype=np.int32)
    cache = Cache.fill(REFERENCE, dtype, rng, 70, 64)
    q = normal(rng, 10, 2, 64)
    for window in (0, 40):
        want = exact(cache, q, positions, window)
        error = cache.attend(REFERENCE, q, positions, window) - want
        assert np.abs(error).max() < tolerance * np.abs(want).max()


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("head_dim", [4, 64, 80, 256])
def test_writing(
    kernels: _core.Kernels, rng: np.random.Generator, dtype: str, head_dim: int
) -> None:
    pools = np.zeros((2, 2, _core.kv_head_bytes(dtype, head_dim)), np.uint8)
    for slot in range(BLOCK):
        key, value = np.exp(3 * normal(rng, 2, head_dim)) * normal(rng, 2, head_dim)
        key *= slot != 3
        value[:4] = 1e9, -1e9, 6e-8, 65519
        for kernel, pool in zip((kernels, REFERENCE), pools, strict=True):
            kernel.write_kv(dtype, pool, 1, slot, key, value)
    np.testing.assert_array_equal(pools[0], pools[1])
    assert not pools[:, 0].any()


def test_every_half_float_and_what_lies_between(kernels: _core.Kernels) -> None:
    whole = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (whole[:-1] + whole[1:]) / 2
    values = np.concatenate([whole, middle, np.nextafter(middle, 0), -middle, [70000, -np.inf]])
    values = np.resize(values.astype(np.float32), (-(-len(values) // 1024), 1024))
    pool = np.zeros((1, _core.kv_head_bytes("float16", 1024)), np.uint8)
    for row in values:
        kernels.write_kv("float16", pool, 0, 5, row, row)
        key, value = pool[0].view(np.float16).reshape(2, -1)
        expected = np.clip(row, -65504, 65504).astype(np.float16)
        np.testing.assert_array_equal(value.reshape(BLOCK, 1024)[5], expected)
        np.testing.assert_array_equal(key.reshape(1024, BLOCK)[:, 5], expected)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_scores_of_any_size(kernels: _core.Kernels, rng: np.random.Generator, dtype: str) -> None:
    positions = np.arange(70, 74, dtype=np.int32)
    cache = Cache.fill(kernels, dtype, rng, 74, 64)
    for size in (0.0, 1e-35, 1e-20, 1e3, 1e18):
        q = (size * rng.standard_normal((4, 2, 64))).astype(np.float32)
        got = cache.attend(kernels, q, positions)
        expected = cache.attend(REFERENCE, q, positions)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def test_weights_add_up_to_one_whatever_the_values(rng: np.random.Generator) -> None:
    """A token with a tiny value that takes nearly all the weight: an attention sink."""
    cache = Cache.fill(REFERENCE, "int8", rng, 50, 64)
    q = np.broadcast_to(cache.keys[0], (1, 1, 64)).copy()
    positions = np.array([49], np.int32)
    REFERENCE.write_kv("int8", cache.pool, cache.table[0], 0, cache.keys[0], 0 * cache.values[0])
    cache.values[0] = 0
    want = exact(cache, q, positions)
    got = cache.attend(REFERENCE, q, positions)
    assert np.abs(want).max() < 0.2
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max())


def test_no_numbers_stay_no_numbers(kernels: _core.Kernels, rng: np.random.Generator) -> None:
    for dtype in KV_DTYPES:
        cache = Cache.fill(kernels, dtype, rng, 20, 64)
        q = normal(rng, 2, 1, 64)
        q[1, 0, 7] = np.nan
        out = cache.attend(kernels, q, np.array([18, 19], np.int32))
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all()


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_long_context(rng: np.random.Generator, dtype: str) -> None:
    """32768 tokens: the kernels' sums do not drift."""
    fast = _core.Kernels(_core.available_isas()[0])
    cache = Cache.fill(fast, dtype, rng, 32768, 64)
    q, positions = normal(rng, 1, 3, 64), np.array([32767], np.int32)
    got, expected = cache.attend(fast, q, positions), cache.attend(REFERENCE, q, positions)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)
    if dtype == "int8":
        np.testing.assert_array_equal(bits(got), bits(expected))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_fused_instruction_sets_agree_to_the_bit(rng: np.random.Generator, dtype: str) -> None:
    """AVX2 and AVX-512 do the same operations in the same order."""
    if not {"avx2", "avx512"} <= set(_core.available_isas()):
        pytest.skip("this machine has not both")
    narrow, wide = _core.Kernels("avx2"), _core.Kernels("avx512")
    positions = np.arange(150, 163, dtype=np.int32)
    cache, q = Cache.fill(wide, dtype, rng, 163, 80), normal(rng, 13, 3, 80)
    np.testing.assert_array_equal(
        bits(cache.attend(narrow, q, positions, 124)), bits(cache.attend(wide, q, positions, 124))
    )


@pytest.mark.parametrize("dtype", ["", "int4", "FLOAT32", "bfloat16"])
def test_unknown_types(dtype: str) -> None:
    with pytest.raises(ValueError):
        _core.kv_head_bytes(dtype, 64)
