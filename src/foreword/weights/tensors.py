"""The tensor table of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from foreword import _core
from foreword.weights.cursor import Cursor

MAX_TENSORS = 65_536
MAX_NAME_BYTES = 64  # the format's own limit
MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: as in the file (``blk.0.attn_q.weight``).
        shape: row-major, as numpy says it: a matrix is (rows, columns). GGUF's order, reversed.
        dtype: ggml's number of the data type.
        dtype_name: its name (``Q4_K``).
        offset: of the first byte, from the start of the file.
        nbytes: bytes of data.
    """

    name: str
    shape: tuple[int, ...]
    dtype: int
    dtype_name: str
    offset: int
    nbytes: int


class _Row(NamedTuple):
    """A table entry: ``offset`` counts from the start of the data, ``where`` is its own place."""

    shape: tuple[int, ...]
    dtype: int
    dtype_name: str
    offset: int
    nbytes: int
    where: int


def read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    """Check the table's ``count`` entries and that their data lies in the file, each apart.

    Leaves the cursor at the end of the table.

    Raises:
        ModelFileError: a name is empty, too long, not UTF-8 or there twice; there are no or too
            many dimensions, or one is zero; a data type is unknown; a row is no whole number of
            blocks; data is not aligned, overlaps another tensor's, or passes the end of the file.
    """
    rows: dict[str, _Row] = {}
    for index in range(count):
        start = cursor.offset
        name = cursor.name(f"name of tensor {index} of {count}", MAX_NAME_BYTES)
        if name in rows:
            cursor.fail(f"tensor {name!r}", "is there twice", start)
        rows[name] = _read_row(cursor, f"tensor {name!r}", alignment)
    data_start = -(-cursor.offset // alignment) * alignment
    _check_places(cursor, rows.items(), data_start)
    return {
        name: TensorInfo(
            name, row.shape, row.dtype, row.dtype_name, data_start + row.offset, row.nbytes
        )
        for name, row in rows.items()
    }


def _read_row(cursor: Cursor, field: str, alignment: int) -> _Row:
    where = cursor.offset
    num_dims = cursor.u32(field)
    if not 1 <= num_dims <= MAX_DIMS:
        cursor.fail(field, f"has {num_dims} dimensions; must be 1 to {MAX_DIMS}", where)
    shape = tuple(cursor.u64(field) for _ in range(num_dims))[::-1]
    if 0 in shape:
        cursor.fail(field, f"has the shape {shape}: empty", where)

    where = cursor.offset
    dtype = cursor.u32(field)
    info = _core.dtype_info(dtype)
    if info is None:
        cursor.fail(field, f"has the data type {dtype}; known are {_known_types()}", where)
    dtype_name, block_elements, block_bytes = info
    if shape[-1] % block_elements:
        cursor.fail(
            field, f"a row of {shape[-1]} is no multiple of {dtype_name}'s {block_elements}", where
        )
    where = cursor.offset
    offset = cursor.u64(field)
    if offset % alignment:
        cursor.fail(field, f"its data's offset {offset} is no multiple of {alignment}", where)
    nbytes = prod(shape) // block_elements * block_bytes
    return _Row(shape, dtype, dtype_name, offset, nbytes, where)


def _known_types() -> str:
    infos = (_core.dtype_info(number) for number in range(64))
    return ", ".join(info[0] for info in infos if info is not None)


def _check_places(cursor: Cursor, rows: Iterable[tuple[str, _Row]], data_start: int) -> None:
    """Each tensor's data must lie in the file and begin where the one before has ended."""
    end, before = 0, ""
    available = len(cursor.data) - data_start
    for name, row in sorted(rows, key=lambda item: item[1].offset):
        field = f"tensor {name!r}"
        if row.offset < end:
            cursor.fail(field, f"its data overlaps that of {before!r}", row.where)
        end, before = row.offset + row.nbytes, name
        if end > available:
            cursor.fail(
                field, f"its {row.nbytes} bytes of data pass the end of the file", row.where
            )
