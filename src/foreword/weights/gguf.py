"""GGUF model files: own reader, memory-mapped, checked before anything is believed.

The format is described in ggml's ``docs/gguf.md``: a header (magic, version, counts), key/value
metadata, a table of tensors, and the tensors' data, aligned.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from foreword.errors import ModelFileError
from foreword.weights.cursor import Cursor
from foreword.weights.metadata import MAX_KEYS, UINT32, Metadata, read_metadata
from foreword.weights.tensors import MAX_TENSORS, TensorInfo, read_tensors

__all__ = ["GGUFFile", "TensorInfo"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT, MAX_ALIGNMENT = 8, 2**20  # the format asks for a multiple of 8


class GGUFFile:
    """A GGUF file (version 2 or 3, little-endian), mapped read-only.

    Opening reads the header alone and checks all of it; values and weights stay in the file.
    Views handed out keep the mapping alive. The file must not be truncated while it is mapped:
    as with any mapping, a read behind its new end would kill the process.

    Attributes:
        path: the file.
        version: of the format.
        alignment: of each tensor's data, in bytes.
        metadata: the key/value pairs.
        tensors: by name, in the file's order.
    """

    def __init__(
        self,
        path: Path,
        data: memoryview,
        version: int,
        metadata: Metadata,
        alignment: int,
        tensors: Mapping[str, TensorInfo],
        header_bytes: int,
    ) -> None:
        self.path = path
        self.version = version
        self.metadata = metadata
        self.alignment = alignment
        self.tensors = tensors
        self._data = data
        self._header_bytes = header_bytes

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Map a file and check its header.

        Raises:
            ModelFileError: the file cannot be opened, or anything in its header is not as the
                format demands; names the field and its offset. Takes time and memory in proportion
                to what the file really holds, whatever its counts claim.
        """
        path = Path(path)
        cursor = Cursor(path, _map(path))
        version, tensor_count, key_count = _read_preamble(cursor)
        metadata = read_metadata(cursor, key_count)
        alignment = _alignment(cursor, metadata)
        tensors = read_tensors(cursor, tensor_count, alignment)
        return cls(path, cursor.data, version, metadata, alignment, tensors, cursor.offset)

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor: a read-only view of the mapping, no copy.

        Raises:
            KeyError: no such tensor.
        """
        info = self.tensors[name]
        return self._data[info.offset : info.offset + info.nbytes]

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the header and the file's size: a cheap identity, for caches.

        It covers all metadata and every tensor's name, shape and type, not the weights: files that
        differ in their weights alone share it.
        """
        import hashlib

        digest = hashlib.sha256(self._data[: self._header_bytes])
        digest.update(len(self._data).to_bytes(8, "little"))
        return digest.digest()

    def close(self) -> None:
        """Let go of the file: its metadata and tensors are gone, views handed out stay valid."""
        self._data = memoryview(b"")
        self.metadata = Metadata(self._data, {})
        self.tensors = {}

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _map(path: Path) -> memoryview:
    """The whole of a regular file, read-only."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(path, "file", "is not a regular file")
            if status.st_size == 0:
                raise ModelFileError(path, "magic", "the file is empty", offset=0)
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelFileError(path, "file", f"cannot be opened ({error})") from error


def _read_preamble(cursor: Cursor) -> tuple[int, int, int]:
    """Version, number of tensors, number of keys."""
    start = cursor.skip(len(MAGIC), "magic")
    magic = bytes(cursor.data[start : cursor.offset])
    if magic != MAGIC:
        cursor.fail("magic", f"is {magic!r}, not {MAGIC!r}: not a GGUF file", start)
    start = cursor.offset
    version = cursor.u32("version")
    if version not in VERSIONS:
        if version.to_bytes(4, "little")[:2] == b"\0\0":
            cursor.fail("version", "the file is big-endian; foreword reads little-endian", start)
        cursor.fail("version", f"{version} is not supported; 2 and 3 are", start)
    tensor_count = cursor.count("tensor_count", MAX_TENSORS)
    return version, tensor_count, cursor.count("metadata_kv_count", MAX_KEYS)


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    entry = metadata.entry(key)
    value = metadata[key]
    if entry.kind != UINT32 or not isinstance(value, int):
        cursor.fail(key, "is not a 32-bit unsigned integer", entry.offset)
    if value & (value - 1) or not MIN_ALIGNMENT <= value <= MAX_ALIGNMENT:
        cursor.fail(
            key,
            f"{value} is not a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}",
            entry.offset,
        )
    return value
