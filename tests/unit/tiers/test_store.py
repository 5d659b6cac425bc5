from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.waiting import HANG_S, wait_for

from foreword.kv.identity import BlockName
from foreword.tiers.memory import MemoryTier
from foreword.tiers.store import BlockStore, Fetch


def names(count: int) -> list[BlockName]:
    return [BlockName(bytes([n]) * 32, b"p" * 32, bytes([n])) for n in range(count)]


class Faulty(MemoryTier):
    """Memory that fails or hangs when told to."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.error: OSError | None = None
        self.calls = 0
        self.gate = threading.Event()
        self.gate.set()

    def has(self, name: BlockName) -> bool:
        self.calls += 1
        self.gate.wait()
        if self.error:
            raise self.error
        return super().has(name)

    def put(self, name: BlockName, contents: bytes) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        super().put(name, contents)


@pytest.fixture
def tier() -> Iterator[Faulty]:
    tier = Faulty()
    yield tier
    tier.gate.set()


def finish(fetch: Fetch | None) -> Fetch:
    assert fetch is not None
    wait_for(lambda: fetch.done)
    return fetch


def filled(tier: Faulty, count: int) -> BlockStore:
    store = BlockStore([tier], 8)
    for name in names(count):
        store.put(name, bytes(8))
    assert store.flush()
    return store


def test_blocks_come_back_up_to_the_first_that_is_missing(tier: Faulty) -> None:
    store = filled(tier, 5)
    fetch = finish(store.fetch(names(9), recompute_s=1.0))
    assert fetch.contents == [("memory", bytes(8))] * 5
    assert fetch.expected == 5
    store.close()


def test_the_faster_tier_is_asked_first(tier: Faulty) -> None:
    fast, slow = MemoryTier(16), MemoryTier(1000)
    slow.name = "slow"  # type: ignore[misc]
    store = BlockStore([fast, slow], 8)
    for name in names(4):
        store.put(name, bytes(8))
    store.flush()
    fetch = finish(store.fetch(names(4), recompute_s=1.0))
    assert [source for source, _ in fetch.contents] == ["slow", "slow", "memory", "memory"]
    store.close()


def test_a_short_prefix_is_not_worth_asking(tier: Faulty) -> None:
    store = filled(tier, 5)
    assert store.fetch(names(5), recompute_s=0.003) is None
    assert store.fetch([], recompute_s=1.0) is None
    store.close()


def test_what_loads_slower_than_it_is_computed_is_computed(tier: Faulty) -> None:
    store = filled(tier, 5)
    store._bytes_per_s = 1.0
    fetch = finish(store.fetch(names(5), recompute_s=1.0))
    assert fetch.contents == []
    for _ in range(100):  # the estimate is doubted in the end
        if finish(store.fetch(names(5), recompute_s=1.0)).contents:
            break
    else:
        pytest.fail("it never tried again")
    store.close()


def test_a_tier_that_fails_is_left_alone_for_a_while(tier: Faulty) -> None:
    now_s = 0.0
    store = BlockStore([tier], 8, clock=lambda: now_s)
    tier.error = OSError("no such device")
    for name in names(20):
        store.put(name, bytes(8))
    assert store.flush()
    assert tier.calls == 3
    for _ in range(3):
        finish(store.fetch(names(2), recompute_s=1.0))
    assert store.fetch(names(2), recompute_s=1.0) is None
    tier.error, now_s = None, 31.0
    store.put(names(1)[0], bytes(8))
    assert store.flush()
    assert finish(store.fetch(names(2), recompute_s=1.0)).expected == 1
    store.close()


def test_nothing_is_asked_where_readers_hang(tier: Faulty) -> None:
    store = filled(tier, 5)
    tier.gate.clear()
    hanging = [store.fetch(names(5), recompute_s=1.0) for _ in range(2)]
    wait_for(lambda: len(store._reading) == 2)
    for fetch in hanging:
        assert fetch is not None
        fetch.abandoned = True
    assert store.fetch(names(5), recompute_s=1.0) is None
    tier.gate.set()
    for fetch in hanging:
        finish(fetch)
    assert len(finish(store.fetch(names(5), recompute_s=1.0)).contents) == 5
    store.close()


def test_the_deadline_moves_with_what_has_come() -> None:
    fetch = Fetch(names(10), recompute_s=1.0, began_s=100.0)
    assert fetch.deadline_s() == 100.5
    fetch.contents = [("memory", b"")] * 3
    assert fetch.deadline_s() == 103.0
    fetch.expected = 5
    assert fetch.deadline_s() == 103.0
    fetch.expected = 0
    assert fetch.deadline_s() == 100.0


def test_writes_that_pile_up_are_dropped(tier: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreword.tiers.store._MAX_PENDING_BYTES", 20)
    put = threading.Event()
    original = tier.put
    tier.put = lambda *args: (put.wait(), original(*args))[1]  # type: ignore[method-assign]
    store = BlockStore([tier], 8)
    for name in names(10):
        store.put(name, bytes(8))
    put.set()
    assert store.flush()
    assert len(tier._blocks) == 2
    store.close()


def test_clearing_comes_after_what_waits_to_be_written(tier: Faulty) -> None:
    store = BlockStore([tier], 8)
    for name in names(200):
        store.put(name, bytes(8))
    store.clear().result(HANG_S)
    assert tier.num_bytes == 0
    store.close()


def test_a_tier_that_cannot_be_cleared_is_told_and_the_others_are_cleared(tier: Faulty) -> None:
    class ReadOnly(MemoryTier):
        def clear(self) -> None:
            raise OSError("read-only")

    store = BlockStore([ReadOnly(1000), tier], 8)
    store.put(names(1)[0], bytes(8))
    with pytest.raises(OSError, match="read-only"):
        store.clear().result(HANG_S)
    assert tier.num_bytes == 0
    store.put(names(1)[0], bytes(8))
    assert store.flush()
    assert tier.num_bytes == 8
    store.close()
