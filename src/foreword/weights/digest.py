"""The digest of a whole model file, read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

_CHUNK_BYTES = 1 << 22


def file_digest(path: Path, notes: Path) -> bytes:
    """SHA-256 of a file, 32 bytes.

    Large files take seconds, so the digest is noted down beside what tells of a change: place,
    inode, size, times. Where the notes cannot be kept, the file is read each time.

    Args:
        notes: folder for the notes.
    """
    stat = path.stat()
    seen = [str(path.resolve()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    note = notes / (hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32] + ".json")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text())
        if known["file"] == seen:
            return bytes.fromhex(known["sha256"])
    digest = _read(path)
    with contextlib.suppress(OSError):
        notes.mkdir(parents=True, exist_ok=True)
        part = note.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"file": seen, "sha256": digest.hex()}))
        part.replace(note)
    return digest


def _read(path: Path) -> bytes:
    state = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            state.update(chunk)
    return state.digest()
