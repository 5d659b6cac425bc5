"""Files that are not what they claim: one exception, quickly, whatever the damage."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_writer import (
    ARRAY,
    BOOL,
    STRING,
    U32,
    U64,
    Tensor,
    Typed,
    gguf_bytes,
    key_value,
    preamble,
    string,
    tensor_entry,
    u32,
    u64,
)

from foreword.errors import ModelFileError
from foreword.weights.gguf import GGUFFile

DATA = bytes(256)
SOUND = gguf_bytes(
    {
        "general.alignment": 32,
        "tokens": ["a", "bc", "def"],
        "scores": [0.5, 1.5],
        "flag": True,
        "flags": [True, False],
        "template": "{{ x }}",
    },
    {"a": Tensor.f32(np.ones((3, 4), np.float32)), "b": Tensor((2, 32), 8, bytes(68))},
)


def table(*entries: bytes, data: bytes = DATA) -> bytes:
    head = preamble(len(entries), 0) + b"".join(entries)
    return head + bytes(-len(head) % 32) + data


def keys(*pairs: bytes, count: int | None = None) -> bytes:
    return preamble(0, len(pairs) if count is None else count) + b"".join(pairs)


def key_raw(kind: int, payload: bytes, key: str = "k") -> bytes:
    return keys(string(key) + u32(kind) + payload)


# name -> (bytes, what the message must name)
CASES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "magic"),
    "wrong magic": (b"GGML" + SOUND[4:], "magic"),
    "big-endian": (b"GGUF" + (3).to_bytes(4, "big") + SOUND[8:], "big-endian"),
    "version 1": (b"GGUF" + u32(1) + SOUND[8:], "version"),
    "version 4": (b"GGUF" + u32(4) + SOUND[8:], "version"),
    "2^63 tensors": (preamble(2**63, 0), "tensor_count"),
    "more tensors than bytes": (preamble(60_000, 0), "tensor 0 of 60000"),
    "2^63 keys": (preamble(0, 2**63), "metadata_kv_count"),
    "2^64-1 keys": (preamble(0, 2**64 - 1), "metadata_kv_count"),
    "more keys than bytes": (keys(key_value("k", 1), count=60_000), "key 1 of 60000"),
    "2^63 strings": (key_raw(ARRAY, u32(STRING) + u64(2**63) + DATA), "'k'"),
    "2^31 strings": (key_raw(ARRAY, u32(STRING) + u64(2**31) + DATA), "'k'"),
    "2^63 numbers": (key_raw(ARRAY, u32(U64) + u64(2**63) + DATA), "'k'"),
    "2^64-1 numbers": (key_raw(ARRAY, u32(U32) + u64(2**64 - 1) + DATA), "'k'"),
    "1 GiB string": (key_raw(STRING, u64(2**30) + DATA), "'k'"),
    "2^64-1 string": (key_raw(STRING, u64(2**64 - 1) + DATA), "'k'"),
    "long string in array": (key_raw(ARRAY, u32(STRING) + u64(2) + string("x") + u64(99)), "'k'"),
    "nested arrays": (key_raw(ARRAY, u32(ARRAY) + u64(1) + u32(U32) + u64(0)), "array of arrays"),
    "unknown type": (key_raw(13, DATA), "type 13"),
    "unknown item type": (key_raw(ARRAY, u32(77) + u64(1) + DATA), "type 77"),
    "bool of 2": (key_raw(BOOL, b"\2"), "bool"),
    "bools of 2": (key_raw(ARRAY, u32(BOOL) + u64(2) + b"\1\2"), "bool"),
    "key twice": (keys(key_value("k", 1), key_value("k", 2)), "twice"),
    "empty key": (key_raw(U32, u32(1), key=""), "key 0"),
    "huge key": (keys(string(b"k" * 70_000) + u32(U32) + u32(1)), "key 0"),
    "key not UTF-8": (keys(string(b"\xff") + u32(U32) + u32(1)), "UTF-8"),
    "tensor twice": (
        table(tensor_entry("t", (8,), 0, 0), tensor_entry("t", (8,), 0, 32)),
        "twice",
    ),
    "empty tensor name": (table(tensor_entry("", (8,), 0, 0)), "tensor 0"),
    "long tensor name": (table(tensor_entry("t" * 65, (8,), 0, 0)), "tensor 0"),
    "tensor name not UTF-8": (table(tensor_entry(b"\xc3", (8,), 0, 0)), "UTF-8"),
    "no dimensions": (table(tensor_entry("t", (), 0, 0)), "0 dimensions"),
    "five dimensions": (table(tensor_entry("t", (1, 1, 1, 1, 1), 0, 0)), "5 dimensions"),
    "10^6 dimensions": (table(string("t") + u32(10**6) + DATA), "1000000 dimensions"),
    "a dimension of zero": (table(tensor_entry("t", (4, 0), 0, 0)), "empty"),
    "product beyond 64 bits": (table(tensor_entry("t", (2**42, 2**42), 0, 0)), "'t'"),
    "product that wraps to 0": (table(tensor_entry("t", (2**32, 2**32), 0, 0)), "'t'"),
    "unknown data type": (table(tensor_entry("t", (8,), 4, 0)), "data type 4"),
    "data type 2^32-1": (table(tensor_entry("t", (8,), 2**32 - 1, 0)), "data type 4294967295"),
    "part of a block": (table(tensor_entry("t", (2, 33), 8, 0)), "multiple of Q8_0's 32"),
    "blocks only in total": (table(tensor_entry("t", (32, 16), 8, 0)), "multiple of Q8_0's 32"),
    "unaligned": (table(tensor_entry("t", (8,), 0, 4)), "multiple of 32"),
    "offset past the end": (table(tensor_entry("t", (8,), 0, 2**40)), "end of the file"),
    "offset near 2^64": (table(tensor_entry("t", (8,), 0, 2**64 - 32)), "end of the file"),
    "data past the end": (table(tensor_entry("t", (65,), 0, 0)), "end of the file"),
    "no data": (table(tensor_entry("t", (8,), 0, 0), data=b""), "end of the file"),
    "same data": (
        table(tensor_entry("t", (8,), 0, 0), tensor_entry("u", (8,), 0, 0)),
        "overlaps",
    ),
    "overlap": (table(tensor_entry("u", (8,), 0, 32), tensor_entry("t", (16,), 0, 0)), "overlaps"),
} | {
    f"alignment {value}": (keys(key_value("general.alignment", value)), "general.alignment")
    for value in (0, 1, 3, 4, 48, 2**21, 2**30, "32", True, 32.0, [32], Typed(U64, 32))
}


def attempt(path: Path) -> ModelFileError | None:
    """Open the file and touch everything in it."""
    try:
        file = GGUFFile.open(path)
    except ModelFileError as error:
        return error
    size = path.stat().st_size
    for key, value in file.metadata.items():
        assert isinstance(key, str)
        if not isinstance(value, (int, float, str)):
            assert len(list(value)) == len(value)
    end = 0
    for info in sorted(file.tensors.values(), key=lambda info: info.offset):
        assert end <= info.offset
        end = info.offset + info.nbytes
        assert end <= size
        assert len(file.data(info.name)) == info.nbytes
    assert len(file.fingerprint) == 32
    return None


@pytest.mark.parametrize("name", CASES)
def test_malformed(tmp_path: Path, name: str) -> None:
    raw, named = CASES[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    start = time.process_time()
    error = attempt(path)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error is not None
    assert named in str(error)
    assert error.path == path
    assert error.offset is not None
    assert 0 <= error.offset <= len(raw)
    assert seconds < 2
    assert peak < 50e6


def test_sound_files_are_sound(tmp_path: Path) -> None:
    """The cases above fail for their one fault, not for what they are built from."""
    path = tmp_path / "good.gguf"
    for raw in (SOUND, keys(key_value("k", 1)), table(tensor_entry("t", (64,), 0, 0))):
        path.write_bytes(raw)
        assert attempt(path) is None


def test_truncated_at_each_byte(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    last_needed = len(SOUND) - (-68 % 32)  # the padding behind the last tensor may be missing
    for length in range(last_needed):
        path.write_bytes(SOUND[:length])
        assert attempt(path) is not None, length
    path.write_bytes(SOUND[:last_needed])
    assert attempt(path) is None


def test_a_field_says_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(SOUND.replace(b"template", b"general\xff"))
    error = attempt(path)
    assert error is not None
    assert error.offset == SOUND.index(b"template")


def test_large_files_cost_no_more(tmp_path: Path) -> None:
    """10 million empty strings, then damage: time and memory stay bounded."""
    path = tmp_path / "large.gguf"
    count = 10_000_000
    head = preamble(0, 2) + string("k") + u32(ARRAY) + u32(STRING) + u64(count)
    with path.open("wb") as out:
        out.write(head)
        out.truncate(len(head) + count * 8 + 40)  # a hole reads as zeros: empty strings
    tracemalloc.start()
    start = time.process_time()
    error = attempt(path)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error is not None
    assert error.field == "key 1 of 2"
    assert seconds < 2
    assert peak < 50e6


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "NUL in its name"])
def test_no_such_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.gguf"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind.startswith("NUL"):
        path = tmp_path / "x\0.gguf"
    regular = kind in ("missing", "NUL in its name")
    with pytest.raises(ModelFileError, match="cannot be opened" if regular else "regular file"):
        GGUFFile.open(path)


HOSTILE = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
positions = st.integers(0, len(SOUND) - 1)
mutations = st.one_of(
    st.tuples(positions, st.binary(min_size=1, max_size=4)),
    st.tuples(positions, st.sampled_from(HOSTILE).map(u64)),
    st.tuples(positions, st.integers(0, 31).map(u32)),
)


@settings(max_examples=600)
@given(changes=st.lists(mutations, min_size=1, max_size=4), cut=st.none() | positions)
def test_fuzz(tmp_path: Path, changes: list[tuple[int, bytes]], cut: int | None) -> None:
    raw = bytearray(SOUND)
    for position, patch in changes:
        raw[position : position + len(patch)] = patch
    path = tmp_path / "fuzz.gguf"
    path.write_bytes(raw[:cut])
    attempt(path)


@settings(max_examples=200)
@given(tail=st.binary(max_size=200))
def test_fuzz_after_the_magic(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "fuzz.gguf"
    path.write_bytes(preamble(1, 1) + tail)
    attempt(path)
