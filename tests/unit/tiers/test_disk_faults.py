"""The disk tier on disks that are full, read-only, or somebody else's."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_disks import SmallDisk, as_nobody, small_disk

from foreword.kv.identity import BlockName
from foreword.tiers import block
from foreword.tiers.disk import DiskTier
from foreword.tiers.store import BlockStore

CONTENTS = bytes(8000)
NO_LIMIT = 1 << 40


def name(number: int) -> BlockName:
    return BlockName(number.to_bytes(32, "big"), b"p" * 32, number.to_bytes(4, "big") * 16)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        yield disk


def there(tier: DiskTier, count: int) -> list[int]:
    return [number for number in range(count) if tier.get(name(number)) == CONTENTS]


def test_a_full_disk_is_a_limit_too(disk: SmallDisk) -> None:
    tier = DiskTier(disk.folder, NO_LIMIT)
    for number in range(300):  # more than twice what fits
        tier.put(name(number), CONTENTS)
    kept = there(tier, 300)
    assert kept == list(range(kept[0], 300))  # the latest
    assert len(kept) > 80
    assert tier.num_bytes <= disk.num_bytes
    assert list(disk.folder.rglob("*.part")) == []


def test_a_disk_that_others_fill_is_shared_with_them(disk: SmallDisk) -> None:
    tier = DiskTier(disk.folder, NO_LIMIT)
    for number in range(50):
        tier.put(name(number), CONTENTS)
    disk.fill()
    for number in range(50, 100):
        tier.put(name(number), CONTENTS)
    kept = there(tier, 100)
    assert kept[-1] == 99
    assert 35 < len(kept) <= 50


def test_a_disk_without_room_for_a_block_is_an_error_and_leaves_nothing(disk: SmallDisk) -> None:
    disk.fill()
    tier = DiskTier(disk.folder, NO_LIMIT)
    for number in range(3):
        with pytest.raises(OSError) as raised:
            tier.put(name(number), CONTENTS)
        assert raised.value.errno == errno.ENOSPC
    assert list(disk.folder.rglob("*.*")) == []


def test_what_is_on_a_read_only_disk_is_read(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    tier = DiskTier(disk.folder, NO_LIMIT)
    for number in range(4):
        tier.put(name(number), CONTENTS)
    damaged = tier._path(name(3))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    disk.make_read_only()
    with pytest.raises(OSError, match="Read-only"):
        tier.put(name(9), CONTENTS)
    assert tier.get(name(3)) is None  # and cannot be deleted

    store = BlockStore([tier], len(CONTENTS))
    for number in range(10, 20):
        store.put(name(number), CONTENTS)
    assert store.flush()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "blocks are not written to disk for a while"
    ]
    fetch = store.fetch([name(number) for number in range(4)], recompute_s=100.0)
    assert fetch is not None
    while not fetch.done:
        store.wait(0.01)
    assert fetch.contents == [("disk", CONTENTS)] * 3
    store.close()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "tier", NO_LIMIT)
    tier.put(name(1), CONTENTS)
    store = BlockStore([tier], len(CONTENTS))
    with as_nobody():
        for use in (tier.get, lambda name: tier.put(name, CONTENTS)):
            with pytest.raises(PermissionError):
                use(name(1))
        for _ in range(3):
            fetch = store.fetch([name(1)], recompute_s=100.0)
            assert fetch is not None
            while not fetch.done:
                store.wait(0.01)
            assert fetch.contents == []
        assert store.fetch([name(1)], recompute_s=100.0) is None  # it is not asked any more
    assert tier.get(name(1)) == CONTENTS
    store.close()


def test_files_of_another_version_are_misses_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = DiskTier(tmp_path, NO_LIMIT)
    with monkeypatch.context() as newer:
        newer.setattr(block, "_VERSION", block._VERSION + 1)
        tier.put(name(1), CONTENTS)
        assert tier.get(name(1)) == CONTENTS
    assert tier.get(name(1)) is None
    assert list(tmp_path.rglob("*.kv")) == []
    tier.put(name(1), CONTENTS)
    assert tier.get(name(1)) == CONTENTS


@pytest.mark.parametrize("shift_s", [-1e6, 1e6])
def test_a_clock_that_is_set_makes_no_block_wrong_and_the_limit_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    tier = DiskTier(tmp_path, 100_000)
    for number in range(10):
        tier.put(name(number), CONTENTS)
    right = time.time
    monkeypatch.setattr("foreword.tiers.disk.time.time", lambda: right() + shift_s)
    assert there(tier, 10) == list(range(10))
    for number in range(10, 100):
        tier.put(name(number), CONTENTS)
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= 100_000
    assert tier.get(name(99)) == CONTENTS
