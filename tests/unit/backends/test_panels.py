"""Packed weights on disk: found again, and never trusted blindly."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from support.gguf_writer import Tensor
from support.tiny import TinyModel

from foreword import _core
from foreword.backends.cpu.panels import load_panels
from foreword.errors import ModelFileError
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

MODEL = TinyModel(hidden=64, heads=4, kv_heads=2, mlp=96, dtype="Q4_1", embedding_dtype="Q8_0")
Panels = dict[str, memoryview]


@pytest.fixture
def file(tmp_path: Path) -> GGUFFile:
    return GGUFFile.open(MODEL.write(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "panels"


def load(file: GGUFFile, folder: Path | None) -> Panels:
    return load_panels(file, load_spec(file).linear_names(), folder, num_threads=2)


def same(a: Panels, b: Panels) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_panels_are_those_of_each_matrix(file: GGUFFile) -> None:
    panels = load(file, None)
    assert list(panels) == load_spec(file).linear_names()
    for name, got in panels.items():
        info = file.tensors[name]
        expected = np.empty(_core.panel_bytes(info.dtype, *info.shape), np.uint8)
        _core.pack_panels(info.dtype, file.data(name), *info.shape, expected)
        np.testing.assert_array_equal(got, expected)


def test_the_second_start_maps_what_the_first_packed(file: GGUFFile, folder: Path) -> None:
    first = load(file, folder)
    path = only_file(folder)
    written = path.stat().st_mtime_ns, path.stat().st_ino
    second = load(file, folder)
    assert same(first, second)
    assert same(second, load(file, None))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written


@pytest.mark.parametrize("damage", ["header", "panels", "last byte", "short", "long", "empty"])
def test_a_damaged_file_is_replaced(file: GGUFFile, folder: Path, damage: str) -> None:
    expected = load(file, None)
    load(file, folder)
    path = only_file(folder)
    data = bytearray(path.read_bytes())
    if damage in ("header", "panels", "last byte"):
        data[{"header": 20, "panels": 4096 + 1000, "last byte": -1}[damage]] ^= 4
    data = {"short": data[:-64], "long": data + bytes(64), "empty": bytearray()}.get(damage, data)
    path.write_bytes(data)
    assert same(load(file, folder), expected)
    assert only_file(folder).read_bytes() != data


def test_other_weights_under_the_same_name_are_packed_anew(tmp_path: Path, folder: Path) -> None:
    path = MODEL.write(tmp_path)
    file = GGUFFile.open(path)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    load(file, folder)
    changed = MODEL.tensors()
    kept = changed["blk.0.ffn_up.weight"]
    # its rows, 40 bytes each, in another order
    changed["blk.0.ffn_up.weight"] = Tensor(kept.shape, kept.dtype, kept.data[40:] + kept.data[:40])
    other = GGUFFile.open(MODEL.write(tmp_path, tensors=changed))
    os.utime(path, ns=times)
    assert other.fingerprint == file.fingerprint
    assert same(load(other, folder), load(other, None))
    only_file(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_to(file: GGUFFile, folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    assert same(load(file, folder), load(file, None))
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be(file: GGUFFile, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    assert same(load(file, tmp_path / "plain" / "panels"), load(file, None))


def test_no_room(file: GGUFFile, folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        panels = load(file, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert same(panels, load(file, None))
    assert not list(folder.iterdir())


def test_weights_that_are_not_finite(tmp_path: Path, folder: Path) -> None:
    tensors = MODEL.tensors()
    name = "blk.1.attn_k.weight"
    kept = tensors[name]
    tensors[name] = Tensor(kept.shape, kept.dtype, b"\xff\xff" + kept.data[2:])
    file = GGUFFile.open(MODEL.write(tmp_path, tensors=tensors))
    with pytest.raises(ModelFileError, match=name):
        load(file, folder)
    assert not folder.exists()


def test_checksum(file: GGUFFile) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1000, np.uint8)
    seen = {_core.checksum(data[:n]) for n in range(200)}
    assert len(seen) == 200
    for at in range(0, 1000, 7):
        data[at] ^= 1
        seen.add(_core.checksum(data))
        data[at] ^= 1
    assert len(seen) == 200 + len(range(0, 1000, 7))
