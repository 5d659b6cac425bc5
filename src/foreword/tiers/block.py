"""How a file holds a block."""

from __future__ import annotations

import struct
import zlib

from foreword.errors import ForewordError
from foreword.kv.identity import BlockName

# magic, version, bytes of the key, bytes of the contents, digest, parent's digest, checksum
_HEADER = struct.Struct("<8sIIQ32s32sI")
_MAGIC = b"fw-block"
_VERSION = 1


class DamagedBlockError(ForewordError):
    """A file does not hold the block that its name promises."""


def encode(name: BlockName, contents: bytes) -> bytes:
    """The bytes of a file."""
    return b"".join((_header(name, contents), name.key, contents))


def decode(data: bytes, name: BlockName) -> bytes:
    """The contents of the block ``name``.

    Raises:
        DamagedBlockError: the file is cut short or altered, of another version, or another block.
    """
    start = _HEADER.size + len(name.key)
    if len(data) < start:
        raise DamagedBlockError("it is cut short")
    contents = data[start:]
    if data[:start] != _header(name, contents) + name.key:
        raise DamagedBlockError("it is altered, of another version, or another block")
    return contents


def _header(name: BlockName, contents: bytes) -> bytes:
    fields = _MAGIC, _VERSION, len(name.key), len(contents), name.digest, name.parent
    checksum = zlib.crc32(contents, zlib.crc32(name.key, zlib.crc32(_HEADER.pack(*fields, 0))))
    return _HEADER.pack(*fields, checksum)
