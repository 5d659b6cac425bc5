"""A small GGUF writer for tests: whole files with `gguf_bytes`, odd ones from its pieces."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?"}
FORMATS |= {U64: "Q", I64: "q", F64: "d"}


@dataclass(frozen=True)
class Typed:
    """A metadata value with its type spelled out; an array if ``value`` is a list."""

    kind: int
    value: object


@dataclass(frozen=True)
class Tensor:
    """A tensor in numpy's order of dimensions, its data as stored."""

    shape: tuple[int, ...]
    dtype: int
    data: bytes

    @classmethod
    def f32(cls, values: NDArray[np.float32]) -> Tensor:
        return cls(values.shape, 0, values.astype("<f4").tobytes())


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return u64(len(raw)) + raw


def preamble(num_tensors: int, num_keys: int, *, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(num_tensors) + u64(num_keys)


def item(kind: int, value: object) -> bytes:
    if kind == STRING:
        assert isinstance(value, (str, bytes))
        return string(value)
    return struct.pack("<" + FORMATS[kind], value)


def key_value(key: str | bytes, value: object) -> bytes:
    """Plain ints become u32, floats f32, lists arrays of what their first item is."""
    typed = value if isinstance(value, Typed) else Typed(_kind(value), value)
    if isinstance(typed.value, list):
        items = b"".join(item(typed.kind, entry) for entry in typed.value)
        return string(key) + u32(ARRAY) + u32(typed.kind) + u64(len(typed.value)) + items
    return string(key) + u32(typed.kind) + item(typed.kind, typed.value)


def _kind(value: object) -> int:
    if isinstance(value, list):
        return _kind(value[0])
    for python_type, kind in ((bool, BOOL), (int, U32), (float, F32), (str, STRING)):
        if isinstance(value, python_type):
            return kind
    raise TypeError(type(value))


def tensor_entry(name: str | bytes, shape: Sequence[int], dtype: int, offset: int) -> bytes:
    dims = b"".join(u64(size) for size in reversed(shape))
    return string(name) + u32(len(shape)) + dims + u32(dtype) + u64(offset)


def gguf_bytes(
    metadata: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A whole, sound file. ``general.alignment`` is the caller's to add where it is not 32."""
    head = preamble(len(tensors), len(metadata), version=version)
    head += b"".join(key_value(key, value) for key, value in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        head += tensor_entry(name, tensor.shape, tensor.dtype, len(data))
        data += tensor.data + bytes(-len(tensor.data) % alignment)
    return head + bytes(-len(head) % alignment) + data
