"""The tiers that hold blocks: memory and disk under one suite, then what only a disk does."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import wait_for

from foreword.kv.identity import BlockName
from foreword.tiers.disk import DiskTier
from foreword.tiers.memory import MemoryTier
from foreword.tiers.store import Tier


def name(number: int) -> BlockName:
    return BlockName(number.to_bytes(32, "big"), b"p" * 32, number.to_bytes(4, "big") * 16)


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Tier]:
    if request.param == "memory":
        return MemoryTier
    return lambda limit_bytes: DiskTier(tmp_path / "tier", limit_bytes)


def test_what_is_put_can_be_got(make: Callable[[int], Tier]) -> None:
    tier = make(10_000)
    assert not tier.has(name(1))
    assert tier.get(name(1)) is None
    tier.put(name(1), b"one")
    tier.put(name(1), b"one")
    assert tier.has(name(1))
    assert tier.get(name(1)) == b"one"
    assert tier.get(name(1)._replace(key=b"other tokens")) is None
    tier.clear()
    assert not tier.has(name(1))
    assert tier.num_bytes == 0


def test_the_limit_is_kept(make: Callable[[int], Tier]) -> None:
    tier = make(20_000)
    for number in range(100):
        tier.put(name(number), bytes(1000))
        assert 0 < tier.num_bytes <= 20_000
    assert tier.has(name(99))
    assert not tier.has(name(0))
    tier.put(name(500), bytes(30_000))
    assert not tier.has(name(500))


def test_memory_forgets_what_was_used_longest_ago() -> None:
    tier = MemoryTier(3000)
    for number in range(3):
        tier.put(name(number), bytes(1000))
    tier.get(name(0))
    tier.put(name(3), bytes(1000))
    assert [tier.has(name(number)) for number in range(4)] == [True, False, True, True]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_disk_forgets_what_was_used_longest_ago(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 6000)
    for number in range(4):
        tier.put(name(number), bytes(1000))
        age_s = 1000 - 100 * number
        os.utime(tier._path(name(number)), (time.time() - age_s,) * 2)
    tier.get(name(0))  # notes the use
    for number in (4, 5):
        tier.put(name(number), bytes(1000))
    assert [tier.has(name(number)) for number in range(6)] == [True, False, False, True, True, True]


@pytest.mark.parametrize("limit_bytes", [20_000, 100_000])
def test_those_who_share_a_folder_keep_its_limit_together(tmp_path: Path, limit_bytes: int) -> None:
    tiers = [DiskTier(tmp_path, limit_bytes) for _ in range(4)]
    for number in range(400):
        tiers[number // 7 % 4].put(name(number), bytes(1000))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= limit_bytes
    assert all(tier.get(name(399)) == bytes(1000) for tier in tiers)
    assert sum(path.stat().st_size for path in files(tmp_path)) > limit_bytes * 0.7


def test_a_damaged_file_is_a_miss_and_goes(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 10_000)
    tier.put(name(1), bytes(1000))
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert tier.get(name(1)) is None
    assert files(tmp_path) == []
    tier.put(name(1), bytes(1000))
    assert tier.get(name(1)) == bytes(1000)


def test_what_dead_writers_left_is_deleted_in_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "ab"
    folder.mkdir()
    for part, age_s in (("dead.part", 5000), ("live.part", 1)):
        (folder / part).write_bytes(b"half")
        os.utime(folder / part, (time.time() - age_s,) * 2)
    DiskTier(tmp_path, 10_000).put(name(1), b"x")
    assert [path.name for path in files(folder)] == ["live.part"]


def test_files_are_the_owners_alone(tmp_path: Path) -> None:
    DiskTier(tmp_path / "tier", 10_000).put(name(1), b"secret")
    for path in (tmp_path / "tier").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "tier", 10_000)
    tier.put(name(1), b"x")
    for path in files(tmp_path):
        path.unlink()
    os.rename(tmp_path / "tier", tmp_path / "gone")
    assert tier.get(name(1)) is None
    tier.put(name(1), b"x")
    assert tier.get(name(1)) == b"x"


def test_a_folder_that_is_a_file_is_an_error_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "tier").write_text("not a folder")
    tier = DiskTier(tmp_path / "tier", 10_000)
    with pytest.raises(OSError):
        tier.put(name(1), b"x")


def test_a_damaged_file_that_cannot_be_deleted_is_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = DiskTier(tmp_path, 10_000)
    tier.put(name(1), bytes(1000))
    files(tmp_path)[0].write_bytes(b"damaged")

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    assert tier.get(name(1)) is None


def test_a_full_disk_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 1 << 20)
    tier.put(name(1), bytes(1000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError):
            tier.put(name(2), bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(files(tmp_path)) == 1
    assert not tier.has(name(2))
    tier.put(name(2), bytes(5000))
    assert tier.get(name(2)) == bytes(5000)


def test_a_clock_that_went_back_makes_no_file_immortal(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 5000)
    for number in range(4):
        tier.put(name(number), bytes(1000))
    for number in (1, 2):
        os.utime(tier._path(name(number)), (time.time() + 1e6,) * 2)
    tier.get(name(1))  # its use is noted by the right clock
    tier.put(name(4), bytes(1000))
    assert [tier.has(name(number)) for number in range(5)] == [False, True, False, True, True]


def test_a_writer_that_is_killed_leaves_no_block_that_is_wrong(tmp_path: Path) -> None:
    source = Path(__file__).read_text().partition("\n@pytest.fixture")[0]
    loop = f"""
tier = DiskTier(Path({str(tmp_path)!r}), 1 << 30)
for number in range(10**6):
    tier.put(name(number), number.to_bytes(4, "big") * 50_000)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    writer = subprocess.Popen([sys.executable, "-c", source + loop], env=environment)
    wait_for(lambda: len(list(tmp_path.rglob("*.kv"))) >= 20)
    writer.kill()
    writer.wait()
    tier = DiskTier(tmp_path, 1 << 30)
    found = [tier.get(name(number)) for number in range(1000)]
    assert sum(contents is not None for contents in found) >= 20
    for number, contents in enumerate(found):
        assert contents in (None, number.to_bytes(4, "big") * 50_000)
    tier.put(name(10**7), b"x")
    assert tier.get(name(10**7)) == b"x"
