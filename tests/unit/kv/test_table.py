from __future__ import annotations

import pytest

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache, OutOfBlocksError
from foreword.kv.radix import Match


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
    table.start(Match(), 15)
    assert len(table.blocks) == 1
    assert not table.needs_block(15)
    assert table.needs_block(16)
    assert table.extend(16) == []
    assert len(table.blocks) == 2
    assert cache.usage.referenced == 2


def test_only_the_blocks_that_are_asked_for_are_shown() -> None:
    table = BlockTable(make_cache(), [0] * 40)
    table.start(Match(), 40)
    assert table.covering(16) == table.blocks[:1]
    assert table.covering(17) == table.blocks[:2]
    assert table.covering(40) == table.blocks


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    cache = make_cache(caching=False)
    table = BlockTable(cache, [0] * 20)
    table.start(Match(), 20)
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
    table.start(Match(), 40)
    fork = table.fork([0] * 40)
    table.release()
    assert cache.usage.referenced == 3
    fork.release()
    assert cache.usage.free == cache.usage.total


def test_no_block_no_growth() -> None:
    cache = make_cache(1)
    table = BlockTable(cache, [0] * 20)
    table.start(Match(), 16)
    with pytest.raises(OutOfBlocksError):
        table.extend(16)
    assert len(table.blocks) == 1


def test_without_caching_nothing_is_found_or_kept() -> None:
    cache = make_cache(caching=False)
    computed(cache, list(range(64))).release()
    assert cache.usage.cached == 0
    assert BlockTable(cache, list(range(64))).match(63) == Match()


def test_the_longest_beginning_is_found_to_the_token() -> None:
    cache = make_cache()
    first = computed(cache, list(range(50)))
    same = BlockTable(cache, list(range(40)) + [7] * 20)
    hit = same.match(59)
    assert [node.block for node in hit.nodes] == first.blocks[:2]
    assert hit.partial is not None
    assert (hit.partial.block, hit.num_partial, hit.num_tokens(16)) == (first.blocks[2], 8, 40)
    assert same.match(31).num_tokens(16) == 31
    assert BlockTable(cache, [1, *range(49)]).match(49) == Match()


def test_a_part_of_a_block_is_copied() -> None:
    cache = make_cache()
    first = computed(cache, list(range(50)))
    table = BlockTable(cache, list(range(40)) + [7] * 20)
    copies = table.start(table.match(59), 60)
    assert copies == [(first.blocks[2], table.blocks[2])]
    assert cache.pool.references(first.blocks[2]) == 1


def test_what_was_to_be_copied_is_not_published_before_it_is() -> None:
    cache = make_cache()
    computed(cache, list(range(50))).release()
    table = BlockTable(cache, list(range(40)) + [7] * 20)
    table.start(table.match(59), 60)
    table.release()  # the step failed
    assert BlockTable(cache, list(range(40)) + [7] * 20).match(59).num_tokens(16) == 40
    assert cache.usage.cached == 4  # the first sequence's, and no more


def test_the_end_of_a_sequence_can_be_found() -> None:
    cache = make_cache()
    computed(cache, list(range(20))).release()
    longer = BlockTable(cache, list(range(60)))
    hit = longer.match(59)
    assert hit.num_tokens(16) == 20
    longer.start(hit, 60)
    longer.publish(60)
    longer.release()
    # The end that has been continued is the first to go, the longer chain from its end on.
    filler = BlockTable(cache, [9] * 176)
    filler.start(Match(), 176)
    assert cache.usage.free == 0
    assert BlockTable(cache, list(range(60))).match(60).num_tokens(16) == 60
    filler.extend(176)
    assert BlockTable(cache, list(range(60))).match(60).num_tokens(16) == 60
    filler.extend(192)
    assert BlockTable(cache, list(range(60))).match(60).num_tokens(16) == 48


def test_an_end_that_a_fork_still_writes_to_is_not_published() -> None:
    cache = make_cache()
    table = computed(cache, list(range(20)))
    fork = table.fork(list(range(20)))
    table.release()
    assert cache.usage.cached == 0
    fork.release()
    assert cache.usage.cached == 2


def test_salts_keep_blocks_apart() -> None:
    cache = make_cache()
    tokens = list(range(40))
    table = BlockTable(cache, tokens, "alice")
    table.start(Match(), 40)
    table.publish(40)
    table.release()
    assert BlockTable(cache, tokens, "alice").match(39).num_tokens(16) == 39
    assert BlockTable(cache, tokens, "bob").match(39) == Match()
    assert BlockTable(cache, tokens).match(39) == Match()


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
    assert second.blocks[:3] == [node.block for node in hit.nodes]


def test_equal_contents_are_held_once() -> None:
    cache = make_cache()
    tokens = list(range(32))
    one, two = BlockTable(cache, tokens), BlockTable(cache, list(tokens))
    for table in (one, two):
        table.start(Match(), 32)
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
    assert BlockTable(cache, [*tokens, 0]).match(33).num_tokens(16) == 32
    fork.release()
    assert BlockTable(cache, [*tokens, 0]).match(33).num_tokens(16) == 33


def test_a_chain_is_evicted_from_its_end() -> None:
    cache = make_cache(4)
    computed(cache, list(range(64))).release()
    intruder = BlockTable(cache, [9] * 32)
    intruder.start(Match(), 32)
    assert BlockTable(cache, list(range(64))).match(63).num_tokens(16) == 32


def test_what_is_remembered_is_bounded_by_the_pool() -> None:
    cache = make_cache(8)
    for number in range(200):
        computed(cache, [number] * 64).release()
    assert cache.prefixes is not None
    assert len(cache.prefixes) == 8
