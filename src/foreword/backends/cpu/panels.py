"""Weights packed for integer products, kept on disk from one start to the next.

A file holds the panels of one model file: a header, then each matrix's panels, in the order of use.
It is written beside its final name and moved there whole. What makes it valid is in the header: the
identity of the model file and of the layout, and a checksum of the panels, which also finds what a
crash or a bad disk left. An invalid file is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from foreword import _core
from foreword.errors import ModelFileError
from foreword.weights.gguf import GGUFFile

_MAGIC = b"foreword panels\n"
_HEADER = struct.Struct("<16s32sQQ")  # magic, key, bytes of panels, their checksum
_HEADER_BYTES = 4096  # panels start on a page
_ROWS_AT_ONCE = 1024  # a unit of work for a thread: a multiple of a panel's 32 columns
_SAMPLE_BYTES = 256  # of each tensor, for the model file's identity


class _Place(NamedTuple):
    """Where a matrix's panels stand among all."""

    name: str
    dtype: int
    rows: int
    cols: int
    offset: int
    nbytes: int


def load_panels(
    file: GGUFFile, names: Sequence[str], folder: Path | None, *, num_threads: int
) -> dict[str, memoryview]:
    """The panels of some of a file's matrices: mapped from ``folder``, or packed and put there.

    Where ``folder`` is None or cannot be written to, they are in memory.

    Raises:
        ModelFileError: a weight is not finite.
    """
    places = _layout(file, names)
    size = sum(place.nbytes for place in places)
    if folder is None:
        return _split(_packed(file, places, _memory(size), num_threads), places)
    key = _key(file, places)
    path = folder / _file_name(file.path)
    panels = _read(path, key, size)
    if panels is None:
        panels = _build(path, key, size, file, places, num_threads)
    return _split(panels, places)


def _layout(file: GGUFFile, names: Iterable[str]) -> list[_Place]:
    places, offset = [], 0
    for name in names:
        info = file.tensors[name]
        rows, cols = info.shape
        nbytes = _core.panel_bytes(info.dtype, rows, cols)
        places.append(_Place(name, info.dtype, rows, cols, offset, nbytes))
        offset += nbytes
    return places


def _split(panels: memoryview, places: Iterable[_Place]) -> dict[str, memoryview]:
    return {place.name: panels[place.offset : place.offset + place.nbytes] for place in places}


def _packed(
    file: GGUFFile, places: Iterable[_Place], out: memoryview, num_threads: int
) -> memoryview:
    """Fill ``out``."""
    from concurrent.futures import ThreadPoolExecutor

    def pack(place: _Place, first: int) -> None:
        rows = min(_ROWS_AT_ONCE, place.rows - first)
        row_bytes = file.tensors[place.name].nbytes // place.rows
        data = file.data(place.name)[first * row_bytes : (first + rows) * row_bytes]
        start = place.offset + _core.panel_bytes(place.dtype, first, place.cols)
        end = start + _core.panel_bytes(place.dtype, rows, place.cols)
        try:
            _core.pack_panels(place.dtype, data, rows, place.cols, out[start:end])
        except ValueError as error:
            raise ModelFileError(file.path, f"tensor {place.name!r}", str(error)) from error

    with ThreadPoolExecutor(num_threads) as threads:
        work = [
            threads.submit(pack, place, first)
            for place in places
            for first in range(0, place.rows, _ROWS_AT_ONCE)
        ]
        for task in work:
            task.result()
    return out


def _file_name(model: Path) -> str:
    """One for each place that a model file lies at: a changed model replaces its old panels."""
    place = hashlib.sha256(os.fsencode(model.resolve())).hexdigest()
    return f"{model.stem[:80]}-{place[:16]}.panels"


def _key(file: GGUFFile, places: Iterable[_Place]) -> bytes:
    """Names the model file's contents and the layout, as surely as can be without reading it all.

    A file with other weights has another time of change, or other bytes at the start of a tensor.
    """
    digest = hashlib.sha256(file.fingerprint)
    changed = file.path.stat().st_mtime_ns
    digest.update(struct.pack("<IQ", _core.PANEL_VERSION, changed))
    for place in places:
        digest.update(f"{place.name}\0{place.offset}\0".encode())
        digest.update(file.data(place.name)[:_SAMPLE_BYTES])
    return digest.digest()


def _memory(size: int) -> memoryview:
    return _in_huge_pages(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _in_huge_pages(memory: mmap.mmap) -> memoryview:
    """Decoding is bound by reading panels, and small pages cost up to a quarter of that speed."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _read(path: Path, key: bytes, size: int) -> memoryview | None:
    """The panels of a valid file; None for any other."""
    try:
        with path.open("rb") as stored:
            if os.fstat(stored.fileno()).st_size != _HEADER_BYTES + size:
                return None
            memory = mmap.mmap(stored.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    view = _in_huge_pages(memory)
    panels = view[_HEADER_BYTES:]
    header = _HEADER.pack(_MAGIC, key, size, _core.checksum(panels))
    return panels if view[: _HEADER.size] == header else None


def _build(
    path: Path, key: bytes, size: int, file: GGUFFile, places: list[_Place], num_threads: int
) -> memoryview:
    """Pack, store as ``path`` and map that; what was packed, where it cannot be stored."""
    import tempfile

    view = _memory(_HEADER_BYTES + size)
    panels = _packed(file, places, view[_HEADER_BYTES:], num_threads)
    view[: _HEADER.size] = _HEADER.pack(_MAGIC, key, size, _core.checksum(panels))
    with contextlib.ExitStack() as cleanup:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem[:80])
            cleanup.callback(Path(temporary).unlink, missing_ok=True)
            with open(fd, "wb") as stored:
                stored.write(view)  # in one piece, which the page cache keeps in huge pages
            os.replace(temporary, path)
        except OSError:
            return panels
    return _read(path, key, size) or panels
