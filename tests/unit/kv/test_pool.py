from __future__ import annotations

import pytest

from foreword.kv.pool import BlockPool, OutOfBlocksError


@pytest.fixture
def evicted() -> list[int]:
    return []


@pytest.fixture
def pool(evicted: list[int]) -> BlockPool:
    return BlockPool(3, evicted.append)


def test_blocks_run_out(pool: BlockPool) -> None:
    assert {pool.allocate() for _ in range(3)} == {0, 1, 2}
    with pytest.raises(OutOfBlocksError, match="3 blocks"):
        pool.allocate()


def test_a_double_free_is_an_error(pool: BlockPool) -> None:
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(ValueError, match="nobody holds"):
        pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_referenced) == (3, 0, 0)


def test_a_shared_block_is_free_after_its_last_release(pool: BlockPool) -> None:
    block = pool.allocate()
    pool.acquire(block)
    pool.release(block)
    assert (pool.num_free, pool.num_referenced) == (2, 1)
    pool.release(block)
    assert (pool.num_free, pool.num_referenced) == (3, 0)


def test_a_free_block_has_nothing_to_share(pool: BlockPool) -> None:
    with pytest.raises(ValueError, match="is free"):
        pool.acquire(0)


def test_kept_blocks_are_cached_and_can_be_taken_up_again(pool: BlockPool) -> None:
    block = pool.allocate()
    pool.keep(block)
    pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_available) == (2, 1, 3)
    pool.acquire(block)
    assert (pool.num_cached, pool.num_referenced) == (0, 1)


def test_the_least_recently_used_block_is_evicted_first(
    pool: BlockPool, evicted: list[int]
) -> None:
    blocks = [pool.allocate() for _ in range(3)]
    for block in blocks:
        pool.keep(block)
        pool.release(block)
    pool.acquire(blocks[0])  # used again: now the youngest
    pool.release(blocks[0])
    assert [pool.allocate() for _ in range(3)] == [blocks[1], blocks[2], blocks[0]]
    assert evicted == [blocks[1], blocks[2], blocks[0]]


def test_free_blocks_go_before_cached_ones(pool: BlockPool, evicted: list[int]) -> None:
    block = pool.allocate()
    pool.keep(block)
    pool.release(block)
    pool.allocate()
    pool.allocate()
    assert evicted == []
    assert pool.allocate() == block
    assert evicted == [block]


def test_an_evicted_block_is_not_kept_any_longer(pool: BlockPool) -> None:
    for block in [pool.allocate() for _ in range(3)]:
        pool.keep(block)
        pool.release(block)
    block = pool.allocate()
    pool.release(block)
    assert (pool.num_free, pool.num_cached) == (1, 2)
