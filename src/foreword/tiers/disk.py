"""Blocks in a folder: a file each, so that the folder itself is the index and cannot lie."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from foreword.kv.identity import BlockName
from foreword.tiers.block import DamagedBlockError, decode, encode

_SUFFIX = ".kv"
_UNFINISHED = ".part"
_ABANDONED_AFTER_S = 600.0  # an unfinished file of that age: its writer has died
_TOUCH_AFTER_S = 60.0  # the age at which a use is noted: more often would only cost time
# Shares of the limit. Others write to the folder too, and are seen only by counting its files: as
# many as four writers, each ahead of its count by no more than this, keep the limit together.
_MOST_UNCOUNTED = 0.025
_MOST_COUNTED = 0.9
_AFTER_MAKING_ROOM = 0.8
_FULL = (errno.ENOSPC, errno.EDQUOT)


class _File(NamedTuple):
    used_s: float  # Unix time
    num_bytes: int
    path: str


class DiskTier:
    """Blocks as files, the least recently used of them deleted where they exceed a limit.

    Any number of processes may share a folder: a file appears whole or not at all, and one that
    is gone, cut short or altered is a miss. Nothing is synced: what a crash of the machine loses
    is a miss too. Calls may block; an `OSError` means that the folder cannot be used now.

    Args:
        folder: made on first use, readable to its owner only: keys and values tell of prompts.
        limit_bytes: of all files together, kept at each write, by up to four processes.
    """

    name = "disk"

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._num_bytes = 0  # as last counted, and what was written since
        self._uncounted_bytes = float("inf")
        self._parts = 0

    def has(self, name: BlockName) -> bool:
        """Whether there is a file of the block."""
        return self._path(name).exists()

    def get(self, name: BlockName) -> bytes | None:
        """The block's contents; None where it is not there. A damaged file is deleted."""
        path = self._path(name)
        try:
            with open(path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno())
                data = file.readall()
        except FileNotFoundError:
            return None
        try:
            contents = decode(data, name)
        except DamagedBlockError:
            with contextlib.suppress(OSError):  # a miss as well, if it cannot be deleted
                path.unlink()
            return None
        if abs(time.time() - size.st_mtime) > _TOUCH_AFTER_S:
            with contextlib.suppress(OSError):  # it serves as well if its use cannot be noted
                os.utime(path)
        return contents

    def put(self, name: BlockName, contents: bytes) -> None:
        """Write the block, unless it is there. Room is made for it, also on a disk that is full."""
        path = self._path(name)
        if path.exists():
            return
        data = encode(name, contents)
        if len(data) > self._limit_bytes:
            return
        self._make_room(len(data))
        try:
            self._write(path, data)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            files = self._count()  # the disk is full, so there is less for blocks than the limit
            self._delete_oldest(files, self._num_bytes * _MOST_COUNTED - len(data))
            self._write(path, data)

    def clear(self) -> None:
        """Delete every block."""
        for file in self._files():
            _unlink(file)
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all files, as last counted, and what was written since."""
        return self._num_bytes

    def _path(self, name: BlockName) -> Path:
        digest = name.digest.hex()
        return self._folder / digest[:2] / (digest + _SUFFIX)

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._parts += 1
        part = path.with_name(f"{path.stem}-{os.getpid()}-{id(self)}-{self._parts}{_UNFINISHED}")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self._num_bytes += len(data)
        self._uncounted_bytes += len(data)

    def _make_room(self, num_bytes: int) -> None:
        limit_bytes = self._limit_bytes
        if self._uncounted_bytes + num_bytes > limit_bytes * _MOST_UNCOUNTED:
            files = self._count()
            if self._num_bytes + num_bytes > limit_bytes * _MOST_COUNTED:
                self._delete_oldest(files, limit_bytes * _AFTER_MAKING_ROOM - num_bytes)

    def _count(self) -> list[_File]:
        """Every block's file, the least recently used first."""
        files = sorted(self._files())
        self._num_bytes = sum(file.num_bytes for file in files)
        self._uncounted_bytes = 0
        return files

    def _delete_oldest(self, files: list[_File], most_bytes: float) -> None:
        """Delete until no more than ``most_bytes`` are left."""
        for file in files:
            if self._num_bytes <= most_bytes:
                break
            _unlink(file)
            self._num_bytes -= file.num_bytes

    def _files(self) -> Iterator[_File]:
        """Every block's file; what dead writers left is deleted."""
        for folder in self._scan(self._folder):
            if not folder.is_dir():
                continue
            for entry in self._scan(folder.path):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    file = _File(_last_use(stat.st_mtime), stat.st_size, entry.path)
                    if entry.name.endswith(_SUFFIX):
                        yield file
                    elif time.time() - file.used_s > _ABANDONED_AFTER_S:
                        _unlink(file)

    @staticmethod
    def _scan(folder: Path | str) -> Iterator[os.DirEntry[str]]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as it:
            yield from it


def _last_use(modified_s: float) -> float:
    """When a file was used; long ago, where it says that it will be: a clock was wrong."""
    return modified_s if modified_s - time.time() < _TOUCH_AFTER_S else 0.0


def _unlink(file: _File) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        os.unlink(file.path)
