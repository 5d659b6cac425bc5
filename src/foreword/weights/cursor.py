"""Bounded reads from the header of a model file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NoReturn

from foreword import _core
from foreword.errors import ModelFileError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a file's bytes that cannot leave them.

    Every read names the field that it is for; one that would pass the end of the file raises
    `ModelFileError` with that name and the offset, before anything is allocated.
    """

    __slots__ = ("data", "offset", "path")

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path = path
        self.data = data
        self.offset = 0

    def fail(self, field: str, message: str, offset: int | None = None) -> NoReturn:
        """Raise `ModelFileError` for ``field``, at the current offset unless another is given."""
        at = self.offset if offset is None else offset
        raise ModelFileError(self.path, field, message, offset=at)

    @property
    def remaining(self) -> int:
        """Bytes between the position and the end of the file."""
        return len(self.data) - self.offset

    def skip(self, nbytes: int, field: str) -> int:
        """Pass over ``nbytes``; returns where they start."""
        if nbytes > self.remaining:
            self.fail(field, f"needs {nbytes} bytes, but the file ends after {self.remaining}")
        start = self.offset
        self.offset += nbytes
        return start

    def u32(self, field: str) -> int:
        """Read a 32-bit unsigned integer."""
        value: int = _U32.unpack_from(self.data, self.skip(4, field))[0]
        return value

    def u64(self, field: str) -> int:
        """Read a 64-bit unsigned integer."""
        value: int = _U64.unpack_from(self.data, self.skip(8, field))[0]
        return value

    def count(self, field: str, limit: int) -> int:
        """Read a 64-bit count of at most ``limit``."""
        start = self.offset
        value = self.u64(field)
        if value > limit:
            self.fail(field, f"{value} is more than the {limit} that a file may have", start)
        return value

    def name(self, field: str, limit: int) -> str:
        """Read a string of 1 to ``limit`` bytes that must be UTF-8."""
        start = self.offset
        length = self.u64(field)
        if not 1 <= length <= limit:
            self.fail(field, f"is {length} bytes long; must be 1 to {limit}", start)
        begin = self.skip(length, field)
        try:
            return str(self.data[begin : self.offset], "utf-8")
        except UnicodeDecodeError:
            self.fail(field, "is not UTF-8", begin)

    def skip_strings(self, count: int, field: str) -> None:
        """Pass over ``count`` strings, checking that each lies in the file."""
        if count > self.remaining // 8:  # each has a length of 8 bytes
            self.fail(field, f"{count} strings do not fit the {self.remaining} bytes left")
        whole, end = _core.skip_strings(self.data, self.offset, count)
        self.offset = end
        if whole < count:
            self.fail(field, f"string {whole} of {count} passes the end of the file")
