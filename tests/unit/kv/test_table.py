from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache, OutOfBlocksError, identity


def make_cache(num_blocks: int = 16, *, caching: bool = True) -> KVCache:
    return KVCache(CacheConfig(num_blocks=num_blocks, enable_prefix_caching=caching), b"root")


def computed(cache: KVCache, tokens: list[int]) -> BlockTable:
    """A table whose tokens are all computed and published."""
    table = BlockTable(cache, tokens)
    table.start(table.match(len(tokens) - 1), len(tokens))
    table.publish(len(tokens))
    return table


def test_a_table_grows_a_block_at_a_time() -> None:
    cache = make_cache()
    table = BlockTable(cache, [0] * 40)
    table.start([], 15)
    assert len(table.blocks) == 1
    assert not table.needs_block(15)
    assert table.needs_block(16)
    assert table.extend(16) == []
    assert len(table.blocks) == 2
    assert cache.usage.referenced == 2


def test_only_the_blocks_that_are_asked_for_are_shown() -> None:
    table = BlockTable(make_cache(), [0] * 40)
    table.start([], 40)
    assert table.covering(16) == table.blocks[:1]
    assert table.covering(17) == table.blocks[:2]
    assert table.covering(40) == table.blocks


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    cache = make_cache(caching=False)
    table = BlockTable(cache, [0] * 20)
    table.start([], 20)
    fork = table.fork([0] * 20)
    assert fork.blocks == table.blocks
    shared = table.blocks[1]
    assert table.needs_block(20)
    assert table.extend(20) == [(shared, table.blocks[1])]
    assert table.blocks[0] == fork.blocks[0]
    assert table.blocks[1] != fork.blocks[1] == shared
    assert not fork.needs_block(20)  # the last holder writes in place


def test_release_gives_everything_back() -> None:
    cache = make_cache(caching=False)
    table = BlockTable(cache, [0] * 40)
    table.start([], 40)
    fork = table.fork([0] * 40)
    table.release()
    assert cache.usage.referenced == 3
    fork.release()
    assert cache.usage.free == cache.usage.total


def test_no_block_no_growth() -> None:
    cache = make_cache(1)
    table = BlockTable(cache, [0] * 20)
    table.start([], 16)
    with pytest.raises(OutOfBlocksError):
        table.extend(16)
    assert len(table.blocks) == 1


def test_without_caching_nothing_is_found_or_kept() -> None:
    cache = make_cache(caching=False)
    computed(cache, list(range(64))).release()
    assert cache.usage.cached == 0
    assert BlockTable(cache, list(range(64))).match(63) == []


def test_the_longest_run_of_equal_full_blocks_is_found() -> None:
    cache = make_cache()
    first = computed(cache, list(range(50)))
    same = BlockTable(cache, list(range(40)) + [7] * 20)
    assert [node.block for node in same.match(59)] == first.blocks[:2]
    assert [node.block for node in same.match(31)] == first.blocks[:1]  # full blocks only
    assert BlockTable(cache, [1, *range(49)]).match(49) == []


def test_matched_blocks_are_shared_and_counted() -> None:
    cache = make_cache()
    first = computed(cache, list(range(50)))
    second = BlockTable(cache, list(range(50)))
    hit = second.match(49)
    assert second.shortfall(hit, 50) == 1  # three are in use already
    first.release()
    assert second.shortfall(hit, 50) == 4  # now they are among the available ones
    second.start(hit, 50)
    assert cache.usage.referenced == 4
    assert second.blocks[:3] == [node.block for node in hit]


def test_equal_contents_are_held_once() -> None:
    cache = make_cache()
    tokens = list(range(32))
    one, two = BlockTable(cache, tokens), BlockTable(cache, list(tokens))
    for table in (one, two):
        table.start([], 32)
    one.publish(32)
    two.publish(16)
    assert two.blocks[0] == one.blocks[0]
    two.publish(32)
    assert two.blocks == one.blocks
    assert cache.usage.referenced == 2


def test_a_fork_publishes_what_it_adds() -> None:
    cache = make_cache()
    table = computed(cache, list(range(20)))
    tokens = list(range(20))
    fork = table.fork(tokens)
    for position in range(20, 33):
        tokens.append(position + 100)
        if fork.needs_block(position):
            fork.extend(position)
        fork.publish(position + 1)
    assert len(BlockTable(cache, [*tokens, 0]).match(33)) == 2


def test_a_chain_is_evicted_from_its_end() -> None:
    cache = make_cache(4)
    computed(cache, list(range(64))).release()
    intruder = BlockTable(cache, [9] * 32)
    intruder.start([], 32)
    assert len(BlockTable(cache, list(range(64))).match(63)) == 2


def test_what_is_remembered_is_bounded_by_the_pool() -> None:
    cache = make_cache(8)
    for number in range(200):
        computed(cache, [number] * 64).release()
    assert cache.prefixes is not None
    assert len(cache.prefixes) == 8


def blind_to_the_parent(parent: bytes, token_ids: Sequence[int]) -> bytes:
    return bytes(token_ids)


def blind_to_the_tokens(parent: bytes, token_ids: Sequence[int]) -> bytes:
    return bytes([len(parent) % 4]) * (len(parent) % 4 + 1)


def nearly_blind(parent: bytes, token_ids: Sequence[int]) -> bytes:
    return bytes([(sum(parent) + sum(token_ids)) % 5])


@pytest.mark.parametrize("weak", [blind_to_the_parent, blind_to_the_tokens, nearly_blind])
def test_a_collision_is_a_miss(
    monkeypatch: pytest.MonkeyPatch, weak: Callable[[bytes, Sequence[int]], bytes]
) -> None:
    monkeypatch.setattr(identity, "block_digest", weak)
    cache = make_cache(12)
    held: dict[int, tuple[int, ...]] = {}  # for each block, all tokens up to its end
    num_hits = 0
    for contents in itertools.product([0, 1, 2], repeat=4):
        tokens = [token for content in contents for token in [content] * 16]
        table = BlockTable(cache, tokens)
        hit = table.match(63)
        num_hits += len(hit)
        table.start(hit, 64)
        for index in range(len(hit), 4):
            held[table.blocks[index]] = tuple(tokens[: 16 * (index + 1)])
            table.publish(16 * (index + 1))
        for index, block in enumerate(table.blocks):
            assert held[block] == tuple(tokens[: 16 * (index + 1)])
        table.release()
    assert num_hits > 0
