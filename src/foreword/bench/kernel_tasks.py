"""What `foreword bench kernels` times: each kernel with operands of real models' sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foreword import _core
from foreword.bench.cases import (
    KV_DTYPES,
    LAYER_MATRICES,
    MODEL_ATTENTION,
    OUTPUT_MATRICES,
    AttentionShape,
    MatrixShape,
)

KERNELS = ("matmul", "int8_matmul", "attention", "quantize", "dequantize")

_DECODE_TOKENS = 4  # up to here weights come from memory, each once; above, a tile keeps them near
_COLD_BYTES = 128 * 2**20  # more than the caches hold
_CONTEXTS = (512, 4096)
_GROUP, _BLOCK = 32, 16

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel on one shape.

    Attributes:
        run: one call.
        macs: multiply-adds of a call that the result needs; 0: the kernel only moves and converts.
        num_bytes: that a call reads and writes, each once.
        arithmetic: which limit ``macs`` are held against: int8 or float32.
    """

    kernel: str
    shape: str
    tokens: int
    run: Callable[[], None]
    macs: int
    num_bytes: int
    arithmetic: str = "float32"


def kernel_tasks(
    table: _core.Kernels, kernels: Sequence[str], tokens: Sequence[int]
) -> Iterator[Task]:
    """Every task of some `KERNELS`, prepared when its turn comes."""
    rng = np.random.default_rng(1)
    makers: dict[str, Callable[[], Iterator[Task]]] = {
        "matmul": lambda: _matmuls(table, rng, tokens),
        "int8_matmul": lambda: _int8_matmuls(table, rng, tokens),
        "attention": lambda: _attentions(table, rng, tokens),
        "quantize": lambda: _quantizes(table, rng, tokens),
        "dequantize": lambda: _dequantizes(table, rng),
    }
    for kernel in kernels:
        yield from makers[kernel]()


def _matmuls(
    table: _core.Kernels, rng: np.random.Generator, tokens: Sequence[int]
) -> Iterator[Task]:
    sizes = {(matrix.rows, matrix.cols): matrix.name for matrix in LAYER_MATRICES}
    for (rows, cols), name in sizes.items():
        weights = _normal(rng, rows, cols)
        for count in tokens:
            yield _matmul(table, weights, _normal(rng, count, cols), f"{name}: {rows} × {cols}")


def _matmul(table: _core.Kernels, weights: Floats, x: Floats, title: str) -> Task:
    out = np.empty((len(x), len(weights)), np.float32)
    turns = _turns(weights, len(x))
    return Task(
        "matmul",
        title,
        len(x),
        lambda: table.matmul(x, next(turns), out, False),
        len(x) * weights.size,
        weights.nbytes + x.nbytes + out.nbytes,
    )


def _int8_matmuls(
    table: _core.Kernels, rng: np.random.Generator, tokens: Sequence[int]
) -> Iterator[Task]:
    for matrix in (*LAYER_MATRICES, *OUTPUT_MATRICES):
        number = _block(matrix.dtype)[0]
        panels = np.empty(_core.panel_bytes(number, matrix.rows, matrix.cols), np.uint8)
        _core.pack_panels(number, _stored(rng, matrix), matrix.rows, matrix.cols, panels)
        for count in tokens:
            if matrix not in OUTPUT_MATRICES or count <= _DECODE_TOKENS:
                yield _int8_matmul(table, matrix, panels, _normal(rng, count, matrix.cols))


def _int8_matmul(
    table: _core.Kernels, matrix: MatrixShape, panels: NDArray[np.uint8], x: Floats
) -> Task:
    number = _block(matrix.dtype)[0]
    values, groups = _quantized(table, x)
    out = np.empty((len(x), matrix.rows), np.float32)
    turns = _turns(panels, len(x))
    return Task(
        "int8_matmul",
        f"{matrix.name}: {matrix.dtype} {matrix.rows} × {matrix.cols}",
        len(x),
        lambda: table.int8_matmul(number, next(turns), values, groups, out, False),
        len(x) * matrix.rows * matrix.cols,
        panels.nbytes + values.nbytes + groups.nbytes + out.nbytes,
        "int8",
    )


def _attentions(
    table: _core.Kernels, rng: np.random.Generator, tokens: Sequence[int]
) -> Iterator[Task]:
    for dtype in KV_DTYPES:
        for name, shape in MODEL_ATTENTION.items():
            for context in _CONTEXTS:
                if shape.window >= context:
                    continue  # it hides nothing
                pool = _filled_pool(table, rng, dtype, context, shape.head_dim)
                for count in tokens:
                    if count <= context:
                        at = shape._replace(positions=range(context - count, context))
                        title = f"{name}, {dtype}, to {context}"
                        yield _attention(table, rng, dtype, pool, at, title)


def _filled_pool(
    table: _core.Kernels, rng: np.random.Generator, dtype: str, tokens: int, head_dim: int
) -> NDArray[np.uint8]:
    pool = np.zeros((-(-tokens // _BLOCK), _core.kv_head_bytes(dtype, head_dim)), np.uint8)
    for token, (key, value) in enumerate(_normal(rng, tokens, 2, head_dim)):
        table.write_kv(dtype, pool, token // _BLOCK, token % _BLOCK, key, value)
    return pool


def _attention(
    table: _core.Kernels,
    rng: np.random.Generator,
    dtype: str,
    pool: NDArray[np.uint8],
    shape: AttentionShape,
    title: str,
) -> Task:
    """Queries at the end of the pool."""
    positions = np.array(shape.positions, np.int32)
    q = _normal(rng, len(positions), shape.group, shape.head_dim)
    out, turns = np.empty_like(q), _turns(pool, len(positions))
    blocks = np.arange(len(pool), dtype=np.int32)
    scale = shape.head_dim**-0.5
    seen = np.minimum(positions + 1, shape.window or len(pool) * _BLOCK)
    first_block = int(positions[0] + 1 - seen[0]) // _BLOCK
    return Task(
        "attention",
        title,
        len(positions),
        lambda: table.attention(q, dtype, next(turns), blocks, positions, shape.window, scale, out),
        2 * shape.group * shape.head_dim * int(seen.sum()),
        (len(pool) - first_block) * pool.shape[1] + q.nbytes + out.nbytes,
        "int8" if dtype == "int8" else "float32",
    )


def _quantizes(
    table: _core.Kernels, rng: np.random.Generator, tokens: Sequence[int]
) -> Iterator[Task]:
    for cols in sorted({matrix.cols for matrix in LAYER_MATRICES}):
        for count in tokens:
            yield _quantize(table, _normal(rng, count, cols))


def _quantize(table: _core.Kernels, x: Floats) -> Task:
    values, groups = _quantized(table, x)
    return Task(
        "quantize",
        f"{x.shape[1]} activations",
        len(x),
        lambda: table.quantize(x, values, groups),
        0,
        x.nbytes + values.nbytes + groups.nbytes,
    )


def _dequantizes(table: _core.Kernels, rng: np.random.Generator) -> Iterator[Task]:
    for dtype in sorted({matrix.dtype for matrix in (*LAYER_MATRICES, *OUTPUT_MATRICES)}):
        yield _dequantize(table, MatrixShape("", dtype, 64, 2048), rng)


def _dequantize(table: _core.Kernels, matrix: MatrixShape, rng: np.random.Generator) -> Task:
    number, data = _block(matrix.dtype)[0], _stored(rng, matrix)
    out = np.empty(matrix.rows * matrix.cols, np.float32)
    return Task(
        "dequantize",
        f"{matrix.dtype} {matrix.rows} × {matrix.cols}",
        1,
        lambda: table.dequantize(number, data, out),
        0,
        data.nbytes + out.nbytes,
    )


def _normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32)


def _stored(rng: np.random.Generator, matrix: MatrixShape) -> NDArray[np.uint8]:
    """A random matrix as files store it.

    Bytes below 64 make half floats and floats that are all finite, wherever the type has them.
    """
    _, elements, block_bytes = _block(matrix.dtype)
    size = matrix.rows * matrix.cols // elements * block_bytes
    return rng.integers(0, 64, size, np.uint8)


def _block(dtype: str) -> tuple[int, int, int]:
    """Number, weights in a block and bytes of a block of a stored type."""
    for number in range(64):
        info = _core.dtype_info(number)
        if info is not None and info[0] == dtype:
            return number, info[1], info[2]
    raise ValueError(f"no type {dtype}")


def _quantized(table: _core.Kernels, x: Floats) -> tuple[NDArray[np.int8], Floats]:
    groups = -(-x.shape[1] // _GROUP)
    values = np.empty((len(x), groups * _GROUP), np.int8)
    scales = np.empty((len(x), groups, 3), np.float32)
    table.quantize(x, values, scales)
    return values, scales


def _turns(operand: NDArray[Any], tokens: int) -> Iterator[NDArray[Any]]:
    """The operand, or for few tokens copies of it in turn: from memory, as when decoding."""
    copies = max(1, _COLD_BYTES // operand.nbytes) if tokens <= _DECODE_TOKENS else 1
    return cycle([operand, *(operand.copy() for _ in range(copies - 1))])
