from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.scheduling import World, alone, check_outputs, make_request, prompt

from foreword.core.request import Request
from foreword.kv import BlockTable
from foreword.kv.identity import BlockName
from foreword.tiers.disk import DiskTier
from foreword.tiers.loader import Load, TierLoader
from foreword.tiers.memory import MemoryTier
from foreword.tiers.store import BlockStore


def begin(loader: TierLoader, world: World, request: Request) -> bool:
    return loader.begin(request, world.scheduler.prepare(request).table)


class TieredWorld(World):
    """A scheduler over a pool and a disk, one request at a time."""

    def __init__(self, folder: Path, **options: int) -> None:
        super().__init__(budget=500, **options)  # type: ignore[arg-type]
        self.store = BlockStore([DiskTier(folder, 1 << 20)], self.backend.block_bytes)
        self.loader = TierLoader(
            self.cache,
            self.backend,
            self.store,
            lambda count, start: count * 1e3,  # seconds, so many that loading is always worth it
            time.monotonic,
        )

    def step(self, abort_during: tuple[str, int | None] | None = None) -> bool:
        stepped = super().step(abort_during)
        self.loader.save()
        return stepped

    def serve(self, request: Request) -> Load | None:
        load = self._load(request)
        self.add(request)
        self.run()
        self.store.flush()
        for draw in range(request.params.n):
            assert self.completions[request.request_id, draw] == alone(request, draw)
        return load

    def run_steps(self) -> None:
        """Step while there is something to compute."""
        while self.step():
            pass

    def _load(self, request: Request) -> Load | None:
        return self.finish() if self.begin(request) else None

    def begin(self, request: Request) -> bool:
        return begin(self.loader, self, request)

    def finish(self) -> Load:
        """Wait for a load to end."""
        while not (loads := self.loader.finished()):
            self.loader.wait(0.01)
        self._check_blocks()
        return loads[0]

    def _tables(self) -> Iterable[BlockTable]:
        return *super()._tables(), *(load.table for load in self.loader._loads.values())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TieredWorld]:
    world = TieredWorld(tmp_path)
    yield world
    world.store.close()


def ask(name: str, tokens: list[int], **params: int) -> Request:
    return make_request(name, tokens, max_tokens=3, ignore_eos=True, **params)


@pytest.mark.parametrize("length", [*range(31, 35), 47, 48, 49, 100])
def test_after_a_restart_a_prompt_is_loaded(tmp_path: Path, length: int) -> None:
    tokens = [*prompt(length)]
    first = TieredWorld(tmp_path)
    assert first.serve(ask("cold", tokens)) is not None
    first.store.close()
    second = TieredWorld(tmp_path)
    load = second.serve(ask("warm", tokens))
    whole = (length - 1) // 16 * 16
    assert load is not None
    assert load.num_tokens == {"disk": whole}
    assert second.updates[-1].num_cached_tokens == whole
    second.store.close()


def test_only_what_the_pool_lacks_is_loaded(world: TieredWorld, tmp_path: Path) -> None:
    tokens = prompt(100)
    world.serve(ask("cold", tokens))
    assert world.serve(ask("warm", tokens)) is None  # all in the pool
    other = TieredWorld(tmp_path)
    other.serve(ask("part", tokens[:40]))
    load = other.serve(ask("rest", tokens))
    assert load is not None
    assert load.num_tokens == {"disk": 64}
    other.store.close()


def test_what_was_evicted_comes_back(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, num_blocks=10)
    for name, first in (("a", 1), ("b", 3), ("a again", 1), ("b again", 3)):
        load = world.serve(ask(name, prompt(100, first)))
        assert load is not None
        assert (load.num_tokens["disk"] > 0) == ("again" in name)
        assert world.updates[-1].num_cached_tokens == (96 if "again" in name else 0)
    world.store.close()


def test_what_will_be_loaded_is_foreseen(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, num_blocks=10)

    def expected(request: Request) -> tuple[int, float]:
        return world.loader.expect(request, world.scheduler.prepare(request).table)

    prompts = [prompt(100, first) for first in (1, 3)]
    assert expected(ask("a", prompts[0])) == (0, 0.0)
    for name, tokens in zip("ab", prompts, strict=True):
        world.serve(ask(name, tokens))
    assert world.cache.usage.cached < 12  # not all of the first is in the pool
    num_tokens, seconds = expected(ask("a again", prompts[0]))
    assert num_tokens == 96
    assert 0.0 < seconds < 0.01
    assert expected(ask("longer", [*prompts[0], *[9] * 100]))[0] == 96
    assert expected(ask("scored", prompts[0], prompt_logprobs=0)) == (0, 0.0)
    for path in tmp_path.rglob("*.kv"):
        path.unlink()
    assert world.begin(ask("a again", prompts[0]))
    assert not world.finish().num_tokens  # and so it is seen that nothing is there
    assert expected(ask("a again", prompts[0]))[0] < 96
    world.store.clear().result()
    world.cache.clear()
    assert expected(ask("b again", prompts[1])) == (0, 0.0)
    world.store.close()


def test_salts_and_scored_prompts_find_nothing(world: TieredWorld, tmp_path: Path) -> None:
    tokens = prompt(100)
    world.serve(replace(ask("cold", tokens), cache_salt="alice"))
    other = TieredWorld(tmp_path)
    load = other.serve(replace(ask("warm", tokens), cache_salt="bob"))
    assert load is not None
    assert not load.num_tokens
    assert other.serve(ask("scored", tokens, prompt_logprobs=0)) is None
    other.store.close()


def test_a_request_that_leaves_is_forgotten(world: TieredWorld) -> None:
    assert world.begin(ask("a", prompt(100)))
    assert world.loader.abort("a")
    assert not world.loader.abort("a")
    assert not world.loader.has_work
    assert world.loader.finished() == []


def test_damage_of_every_kind_is_a_miss(tmp_path: Path) -> None:
    rng = random.Random(7)
    tokens = prompt(200)
    for damage in ("cut", "flip", "remove", "swap", "empty") * 3:
        world = TieredWorld(tmp_path)
        world.serve(ask("fill", tokens))
        world.store.close()
        paths = sorted(path for path in tmp_path.rglob("*.kv"))
        assert len(paths) == 12
        victim, other = rng.sample(paths, 2)
        data = bytearray(victim.read_bytes())
        if damage == "cut":
            victim.write_bytes(data[: rng.randrange(len(data))])
        elif damage == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            victim.write_bytes(data)
        elif damage == "remove":
            victim.unlink()
        elif damage == "swap":
            victim.write_bytes(other.read_bytes())
        else:
            victim.write_bytes(b"")
        world = TieredWorld(tmp_path)
        load = world.serve(ask("again", tokens))
        assert load is not None
        assert load.num_tokens["disk"] < 192
        world.store.close()


def test_blocks_of_equal_digests_are_not_taken_for_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(parent: bytes, keys: bytes, block_bytes: int) -> list[bytes]:
        digests = [parent]
        for start in range(0, len(keys), block_bytes):
            key = keys[start : start + block_bytes]
            digests.append(bytes([sum(digests[-1] + key) % 3]) * 32)
        return digests[1:]

    monkeypatch.setattr("foreword.kv.identity.block_digests", weak)
    rng = random.Random(3)
    world = TieredWorld(tmp_path, num_blocks=10)
    loaded = 0
    for number in range(60):
        load = world.serve(ask(str(number), prompt(rng.randrange(33, 90), rng.randrange(5))))
        loaded += load.num_tokens.total() if load else 0
    assert loaded > 0
    assert 0 < len(list(tmp_path.rglob("*.kv"))) <= 3
    world.store.close()


def test_what_the_pool_has_of_a_prompt_stays_while_the_rest_is_loaded(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, num_blocks=10)
    world.serve(ask("a", prompt(100)))
    world.serve(ask("b", prompt(100, 3)))  # takes the place of the end of a
    again = ask("a again", prompt(100))
    assert world.begin(again)
    world.add(ask("c", prompt(100, 5)))  # would take that of its beginning too
    world.run_steps()
    load = world.finish()
    assert load.num_tokens == {"disk": 48}
    world.add(again)
    world.run()
    assert world.updates[-1].num_cached_tokens == 96
    world.store.close()


def test_what_others_computed_meanwhile_is_not_loaded_over(tmp_path: Path) -> None:
    before = TieredWorld(tmp_path)
    before.serve(ask("before", prompt(100)))
    before.store.close()
    world = TieredWorld(tmp_path)
    assert world.begin(ask("a", prompt(100)))
    world.add(ask("b", prompt(60)))
    world.run_steps()
    assert world.finish().num_tokens == {"disk": 48}
    world.store.close()


class Hanging(MemoryTier):
    """Memory that has everything and gives a block whenever it is let go on."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.going_on = threading.Semaphore(0)

    def get(self, name: BlockName) -> bytes | None:
        self.going_on.acquire(timeout=20)
        return super().get(name)


@pytest.mark.parametrize("num_given", [0, 2])
def test_a_tier_that_hangs_costs_a_twentieth_of_computing_the_prompt(num_given: int) -> None:
    now_s = 0.0
    world, tier = World(budget=500), Hanging()
    store = BlockStore([tier], world.backend.block_bytes, lambda: now_s)
    loader = TierLoader(
        world.cache, world.backend, store, lambda count, start: count / 96, lambda: now_s
    )
    request = ask("a", prompt(97))  # takes a second, six blocks
    for index in range(6):
        chain = world.cache.chain(list(request.prompt_token_ids), "")
        tier.put(chain.name(index), bytes(world.backend.block_bytes))
    assert begin(loader, world, request)
    fetch = loader._loads["a"].fetch
    for _ in range(num_given):
        tier.going_on.release()
    while len(fetch.contents) < num_given:
        store.wait(0.01)
    until_s = max(0.05, num_given / 6)  # what has come is worth so much
    now_s = until_s - 0.001
    assert loader.finished() == []
    now_s = until_s + 0.001
    (load,) = loader.finished()
    assert load.num_tokens.total() == num_given * 16
    assert not loader.has_work
    tier.going_on.release(6)
    store.close()


def test_a_request_that_leaves_while_it_is_loaded_holds_nothing(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, num_blocks=10)
    for name, first in (("a", 1), ("b", 3)):
        world.serve(ask(name, prompt(100, first)))
    assert world.begin(ask("a again", prompt(100)))
    assert world.cache.usage.referenced == 3
    world.loader.abort("a again")
    assert world.cache.usage.referenced == 0
    world.store.close()


def test_counts_hold_where_loaded_blocks_are_lost_again(tmp_path: Path) -> None:
    """P121."""
    before = TieredWorld(tmp_path)
    for first in (1, 3, 5):
        before.serve(ask(f"cold {first}", prompt(100, first)))
    before.store.close()
    world = TieredWorld(tmp_path, num_blocks=24, short_sighted=True)
    for first in (1, 3, 5):
        request = make_request(f"r{first}", prompt(100, first), max_tokens=90, ignore_eos=True)
        assert world.begin(request)
        world.add(request, loaded=world.finish().num_tokens)
    world.run()
    check_outputs(world)
    totals = world.scheduler.stats.totals
    assert totals.preemptions > 0
    assert totals.prompt_tokens == 300
    assert 0 < totals.loaded_prompt_tokens["disk"] <= totals.cached_prompt_tokens < 300
    assert 0 <= totals.recomputed_tokens < totals.computed_tokens
    world.store.close()


def test_a_pool_without_room_for_all_takes_the_beginning(tmp_path: Path) -> None:
    big = TieredWorld(tmp_path)
    big.serve(ask("cold", prompt(200)))
    big.store.close()
    small = TieredWorld(tmp_path, num_blocks=16)
    small.add(ask("running", prompt(100, 5)))
    small.step()
    assert small.begin(ask("long", prompt(200)))
    assert small.finish().num_tokens == {"disk": 144}  # 9 blocks of 16: the other 7 are in use
    small.run()
    check_outputs(small)
    small.store.close()
