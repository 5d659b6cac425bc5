"""What is kept, what goes first, and what stays whatever happens."""

from __future__ import annotations

from math import inf

import pytest

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache, OutOfBlocksError, Watch
from foreword.kv.prefix import PrefixCache


class Sequences:
    """Runs whole prompts through a pool, one after the other."""

    def __init__(self, num_blocks: int, *, ttl_s: float = inf, context_cost: float = 0.0) -> None:
        config = CacheConfig(num_blocks=num_blocks, prefix_cache_ttl_s=ttl_s)
        self.cache = KVCache(config, b"root", context_cost)
        assert self.cache.prefixes is not None
        self.prefixes: PrefixCache = self.cache.prefixes

    def run(self, tokens: list[int], priority: int = 0) -> int:
        """Compute a prompt; return how much of it was cached."""
        table = BlockTable(self.cache, tokens, priority=priority)
        hit = table.match(len(tokens))
        self.cache.count_hit(hit)
        table.start(hit, len(tokens))
        table.publish(len(tokens))
        table.release()
        return hit.num_tokens(16)

    def found(self, tokens: list[int]) -> int:
        return BlockTable(self.cache, tokens).match(len(tokens)).num_tokens(16)


def document(number: int, blocks: int) -> list[int]:
    return [number * 1000 + position for position in range(blocks * 16)]


def test_what_was_used_once_goes_oldest_first_and_from_its_end() -> None:
    sequences = Sequences(8)
    for number in (1, 2, 3):
        sequences.run(document(number, 3))
    assert sequences.found(document(1, 3)) == 32
    assert sequences.found(document(2, 3)) == 48


def test_one_long_prompt_does_not_wipe_what_is_used_often() -> None:
    sequences = Sequences(40)
    hot, cold = document(1, 5), document(2, 5)
    for _ in range(3):
        sequences.run(hot)
    sequences.run(cold)
    sequences.run(document(3, 35))
    assert sequences.found(hot) == len(hot)
    assert sequences.found(cold) == 0


def test_what_was_popular_once_goes_in_the_end() -> None:
    sequences = Sequences(10)
    for _ in range(100):
        sequences.run(document(1, 5))
    rounds = 0
    while sequences.found(document(1, 5)):
        rounds += 1
        sequences.run(document(1 + rounds, 5))
        assert rounds < 20
    assert rounds > 5


@pytest.mark.parametrize(("priority", "outlives"), [(-9, 8), (-3, 8), (-1, 2), (0, 1)])
def test_urgent_requests_keep_their_blocks_longer(priority: int, outlives: int) -> None:
    sequences = Sequences(10)
    sequences.run(document(1, 5), priority)
    pools = 0
    while sequences.found(document(1, 5)) == 80:
        pools += 1
        sequences.run(document(1 + pools, 5))
        assert pools < 20
    assert pools == outlives + 1


def test_less_urgent_requests_keep_their_blocks_less_long() -> None:
    sequences = Sequences(10)
    sequences.run(document(1, 5))
    sequences.run(document(2, 5), priority=1)
    sequences.run(document(3, 5))
    assert (sequences.found(document(1, 5)), sequences.found(document(2, 5))) == (80, 0)


def test_what_an_urgent_request_uses_is_kept_longer_whoever_computed_it() -> None:
    sequences = Sequences(10)
    sequences.run(document(1, 4), priority=2)
    sequences.run(document(1, 5), priority=-2)
    for number in range(2, 5):
        sequences.run(document(number, 5))
    assert sequences.found(document(1, 5)) == 80


def test_dear_blocks_are_kept_longer() -> None:
    sequences = Sequences(6, context_cost=1.0)
    for number, blocks in ((1, 4), (2, 2), (3, 1)):
        sequences.run(document(number, blocks))
    assert sequences.found(document(1, 4)) == 64
    assert sequences.found(document(2, 2)) == 16


def test_no_block_is_so_dear_that_use_does_not_count() -> None:
    sequences = Sequences(10, context_cost=1.0)
    for _ in range(3):
        sequences.run(document(1, 2))
    sequences.run(document(2, 8))
    sequences.run(document(3, 1))
    assert sequences.found(document(1, 2)) == 32
    assert sequences.found(document(2, 8)) == 7 * 16


def test_pinned_blocks_stay_and_are_not_offered() -> None:
    sequences = Sequences(8)
    sequences.run(document(1, 3))
    pinned = BlockTable(sequences.cache, document(1, 3)).match(48).nodes
    sequences.prefixes.pin(pinned)
    pool = sequences.cache.pool
    assert (pool.num_available, pool.num_cached) == (5, 3)
    sequences.run(document(2, 5))
    assert sequences.found(document(1, 3)) == 48
    with pytest.raises(OutOfBlocksError):
        sequences.run(document(3, 6))


def test_a_pinned_path_can_be_used_and_unpinned() -> None:
    sequences = Sequences(8)
    sequences.run(document(1, 3))
    table = BlockTable(sequences.cache, document(1, 3))
    hit = table.match(48)
    sequences.prefixes.pin(hit.nodes)
    assert table.shortfall(hit, 64) == 1
    table.start(hit, 64)
    sequences.prefixes.unpin(hit.nodes)
    table.release()
    assert sequences.cache.pool.num_available == 8
    sequences.prefixes.pin(hit.nodes)
    sequences.prefixes.pin(hit.nodes[:1])
    sequences.prefixes.unpin(hit.nodes)
    assert sequences.cache.pool.num_available == 7
    sequences.run(document(2, 7))
    assert sequences.found(document(1, 3)) == 16


def test_what_nobody_used_for_long_is_gone() -> None:
    sequences = Sequences(8, ttl_s=10.0)
    sequences.cache.tick(100.0)
    sequences.run(document(1, 3))
    sequences.cache.tick(105.0)
    sequences.run(document(1, 1))
    sequences.cache.tick(112.0)
    assert sequences.found(document(1, 3)) == 16
    assert (sequences.cache.usage.cached, sequences.cache.usage.free) == (1, 7)


def test_a_clock_that_goes_back_ends_nothing_early_and_nothing_late() -> None:
    sequences = Sequences(8, ttl_s=10.0)
    sequences.cache.tick(100.0)
    sequences.run(document(1, 3))
    pins = sequences.cache.pins
    assert pins is not None
    pins.add("pin", sequences.cache.chain(document(1, 3), ""), 16, until_s=105.0)
    sequences.cache.tick(50.0)
    sequences.run(document(2, 3))
    assert sequences.found(document(1, 3)) == sequences.found(document(2, 3)) == 48
    assert pins.num_blocks == 1
    sequences.cache.tick(61.0)
    assert sequences.found(document(2, 3)) == 0
    sequences.cache.tick(116.0)
    assert pins.num_blocks == 0
    assert sequences.found(document(1, 3)) == 16  # idle only since its pin ended
    sequences.cache.tick(127.0)
    assert sequences.cache.usage.free == 8


def test_clearing_leaves_what_is_held_or_pinned() -> None:
    sequences = Sequences(12)
    for number in (1, 2, 3):
        sequences.run(document(number, 3))
    held = BlockTable(sequences.cache, document(1, 3))
    held.start(held.match(48), 48)
    sequences.prefixes.pin(BlockTable(sequences.cache, document(2, 3)).match(48).nodes)
    sequences.cache.pool.free(sequences.prefixes.clear())
    usage = sequences.cache.usage
    assert (usage.referenced, usage.cached, usage.free) == (3, 3, 6)
    assert sequences.found(document(3, 3)) == 0
    assert sequences.found(document(2, 3)) == 48


def test_a_path_that_is_hit_for_ever_takes_no_memory() -> None:
    sequences = Sequences(8)
    for _ in range(2000):
        sequences.run(document(1, 3))
    assert len(sequences.prefixes._eviction._heap) < 200


def test_prompts_that_part_at_every_token_take_no_more_than_the_pool() -> None:
    sequences = Sequences(64)
    stem = [7] * 320
    for number in range(10_000):
        at = number % 320
        prompt = [*stem[:at], 1000 + number, *stem[: 319 - at]]
        sequences.run(prompt)
        usage = sequences.cache.usage
        assert len(sequences.prefixes) == usage.cached
        assert usage.free + usage.cached == 64
    assert len(sequences.prefixes._eviction._heap) <= 2 * 64 + 64


def test_what_comes_back_after_others_is_found_whole() -> None:
    sequences = Sequences(9)
    for number, expected in ((1, 0), (2, 0), (1, 48), (3, 0), (2, 48), (1, 48)):
        assert sequences.run(document(number, 3)) == expected


def test_chats_that_take_turns_compute_only_what_is_new() -> None:
    sequences = Sequences(64)
    chats = [[number] * 5 for number in (1, 2, 3)]
    for turn in range(30):
        for number, chat in enumerate(chats):
            known = len(chat)
            chat += [10 * turn + number] * 10
            assert sequences.run(chat) == (known if turn else 0)


def wait(sequences: Sequences, tokens: list[int]) -> Watch:
    watch = BlockTable(sequences.cache, tokens).watch(len(tokens) - 1)
    assert watch is not None
    return watch


def test_what_a_prompt_in_line_would_use_goes_last() -> None:
    sequences = Sequences(9)
    for number in (1, 2, 3):
        sequences.run(document(number, 3))
    watch = wait(sequences, [*document(1, 3), 7])
    assert watch.num_tokens == 48
    sequences.run(document(4, 5))
    assert [sequences.found(document(number, 3)) for number in (1, 2, 3)] == [48, 0, 16]


def test_it_is_not_spared_once_nobody_waits_for_it() -> None:
    sequences = Sequences(9)
    for number in (1, 2, 3):
        sequences.run(document(number, 3))
    watches = [wait(sequences, [*document(number, 3), 7]) for number in (1, 2)]
    sequences.run(document(4, 2))
    assert sequences.found(document(1, 3)) == sequences.found(document(2, 3)) == 48
    sequences.cache.unwatch(watches[0])
    sequences.run(document(5, 4))
    assert sequences.found(document(1, 3)) == 0
    assert sequences.found(document(2, 3)) == 48


def test_where_all_is_wanted_some_goes_all_the_same() -> None:
    sequences = Sequences(6)
    sequences.run(document(1, 3))
    sequences.run(document(2, 3))
    watches = [wait(sequences, [*document(number, 3), 7]) for number in (1, 2)]
    sequences.run(document(3, 4))
    assert set(sequences.cache.renewed()) == set(watches)
    assert sum(watch.num_tokens for watch in watches) == 32


def test_a_prompt_in_line_is_told_of_blocks_that_come() -> None:
    sequences = Sequences(12)
    watches = [wait(sequences, [*document(1, 4), 7]) for _ in range(2)]
    other = wait(sequences, document(2, 3))
    assert sequences.cache.renewed() == []
    sequences.run(document(1, 2))
    assert sequences.cache.renewed() == watches
    assert [watch.num_tokens for watch in watches] == [32, 32]
    sequences.cache.unwatch(watches[0])
    sequences.run([*document(1, 4), 8])
    assert sequences.cache.renewed() == [watches[1]]
    assert watches[1].num_tokens == 64
    assert other.num_tokens == 0
    sequences.run(document(1, 3))
    assert sequences.cache.renewed() == []
