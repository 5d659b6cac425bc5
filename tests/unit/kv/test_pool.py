from __future__ import annotations

import pytest

from foreword.kv.pool import BlockPool, OutOfBlocksError


class Keeper:
    """Keeps the blocks it is told to, oldest first."""

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        self.kept: list[int] = []

    @property
    def num_cached(self) -> int:
        return len(self.kept)

    @property
    def num_reclaimable(self) -> int:
        return len(self.kept)

    def hold(self, block: int) -> None:
        self.kept.remove(block)

    def drop(self, block: int) -> bool:
        if block in self.wanted:
            self.kept.append(block)
        return block in self.wanted

    def reclaim(self, count: int) -> list[int]:
        return [self.kept.pop(0) for _ in range(count)]


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture
def pool(keeper: Keeper) -> BlockPool:
    return BlockPool(3, keeper)


def test_blocks_run_out(pool: BlockPool) -> None:
    assert set(pool.allocate(3)) == {0, 1, 2}
    with pytest.raises(OutOfBlocksError, match="0 of 3 are left"):
        pool.allocate(1)


def test_too_many_at_once_are_none(pool: BlockPool, keeper: Keeper) -> None:
    (block,) = pool.allocate(1)
    keeper.wanted = {block}
    pool.release(block)
    with pytest.raises(OutOfBlocksError, match="3 of 3 are left"):
        pool.allocate(4)
    assert (pool.num_free, pool.num_cached) == (2, 1)
    assert sorted(pool.allocate(3)) == [0, 1, 2]


def test_a_double_free_is_an_error(pool: BlockPool) -> None:
    (block,) = pool.allocate(1)
    pool.release(block)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_referenced) == (3, 0, 0)


def test_a_shared_block_is_free_after_its_last_release(pool: BlockPool) -> None:
    (block,) = pool.allocate(1)
    pool.acquire(block)
    pool.release(block)
    assert (pool.num_free, pool.num_referenced) == (2, 1)
    pool.release(block)
    assert (pool.num_free, pool.num_referenced) == (3, 0)


def test_without_a_keeper_a_free_block_has_nothing_to_share() -> None:
    with pytest.raises(ValueError, match="is free"):
        BlockPool(3).acquire(0)


def test_kept_blocks_are_cached_and_can_be_taken_up_again(pool: BlockPool, keeper: Keeper) -> None:
    (block,) = pool.allocate(1)
    keeper.wanted = {block}
    pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_available) == (2, 1, 3)
    pool.acquire(block)
    assert (pool.num_cached, pool.num_referenced) == (0, 1)


def test_free_blocks_go_before_cached_ones(pool: BlockPool, keeper: Keeper) -> None:
    (block,) = pool.allocate(1)
    keeper.wanted = {block}
    pool.release(block)
    pool.allocate(1)
    pool.allocate(1)
    assert keeper.kept == [block]
    assert pool.allocate(1) == [block]
    assert keeper.kept == []


def test_what_the_keeper_gives_up_unasked_is_free(pool: BlockPool, keeper: Keeper) -> None:
    (block,) = pool.allocate(1)
    keeper.wanted = {block}
    pool.release(block)
    pool.free(keeper.reclaim(1))
    assert (pool.num_free, pool.num_cached) == (3, 0)
