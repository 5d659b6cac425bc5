from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.scheduling import World, alone, make_request, prompt

from foreword.core.prefill_speed import PrefillSpeed
from foreword.core.request import Request
from foreword.tiers.disk import DiskTier
from foreword.tiers.loader import Load, TierLoader
from foreword.tiers.store import BlockStore


class TieredWorld(World):
    """A scheduler over a pool and a disk, one request at a time."""

    def __init__(self, folder: Path, **options: int) -> None:
        super().__init__(budget=500, **options)  # type: ignore[arg-type]
        self.store = BlockStore([DiskTier(folder, 1 << 20)], self.backend.block_bytes)
        speed = PrefillSpeed()
        speed.observe(100, seconds=1.0)  # slow: loading is always worth it
        self.loader = TierLoader(self.cache, self.backend, self.store, speed, time.monotonic)

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

    def _load(self, request: Request) -> Load | None:
        if not self.loader.begin(request):
            return None
        while not (loads := self.loader.finished()):
            self.loader.wait(0.01)
        self._check_blocks()
        return loads[0]


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
    assert world.loader.begin(ask("a", prompt(100)))
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


def test_a_pool_that_has_no_room_is_left_as_it_is(tmp_path: Path) -> None:
    big = TieredWorld(tmp_path)
    big.serve(ask("cold", prompt(200)))
    big.store.close()
    small = TieredWorld(tmp_path, num_blocks=16)
    small.add(ask("running", prompt(100, 5)))
    small.step()
    assert small.loader.begin(ask("long", prompt(200)))
    while not (loads := small.loader.finished()):
        small.loader.wait(0.01)
    assert not loads[0].num_tokens
    small.run()
    small.store.close()
