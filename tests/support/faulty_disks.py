"""Disks with real faults, where this process may make them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_NOBODY = 65534


class SmallDisk:
    """A file system of its own that can be filled up and made read-only.

    Attributes:
        folder: where it is mounted.
        num_bytes: its size.
    """

    def __init__(self, folder: Path, num_bytes: int) -> None:
        self.folder = folder
        self.num_bytes = num_bytes

    def fill(self) -> None:
        """Put a file there that takes all that is left."""
        with contextlib.suppress(OSError), (self.folder / "others").open("wb", 0) as file:
            while True:
                file.write(bytes(4096))

    def make_read_only(self) -> None:
        """Refuse all writes."""
        _mount("-o", "remount,ro", str(self.folder))


@contextlib.contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[SmallDisk]:
    """Mount a disk at ``folder``; skips the test where that is not allowed."""
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={num_bytes}", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    try:
        yield SmallDisk(folder, num_bytes)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Give up the rights of root for a while, in all threads; skips the test without them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
