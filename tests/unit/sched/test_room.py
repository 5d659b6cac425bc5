"""Who gives way when blocks run out."""

from __future__ import annotations

import pytest
from support.scheduling import World, check_outputs, make_request, prompt


def preempted(world: World) -> list[str]:
    return [name for plan in world.plans for name in plan.notes.preempted]


def test_the_one_that_loses_least_gives_way() -> None:
    world = World(num_blocks=13, max_seqs=3, budget=300, caching=False, short_sighted=True)
    for name, length in (("old and small", 20), ("long", 90), ("middling", 33)):
        world.add(make_request(name, prompt(length), max_tokens=100, ignore_eos=True))
    while not preempted(world):
        assert world.step()
    assert preempted(world) == ["old and small"]
    world.run()
    check_outputs(world)


def test_what_others_hold_too_is_not_lost() -> None:
    world = World(num_blocks=15, max_seqs=3, budget=300, short_sighted=True)
    world.add(make_request("first", [1] * 96, max_tokens=100, ignore_eos=True))
    world.step()
    world.add(make_request("alone", prompt(40), max_tokens=100, ignore_eos=True))
    world.add(make_request("shares", [1] * 96 + [2], max_tokens=100, ignore_eos=True))
    while not preempted(world):
        assert world.step()
    assert preempted(world) == ["shares"]
    world.run()
    check_outputs(world)


@pytest.mark.parametrize("caching", [True, False])
def test_nobody_gives_way_more_often_than_may_be(caching: bool) -> None:
    world = World(num_blocks=24, max_seqs=8, budget=64, caching=caching, short_sighted=True)
    for number in range(30):
        world.add(
            make_request(f"r{number}", prompt(5 + number, number), max_tokens=300, ignore_eos=True)
        )
    world.run()
    often = [preempted(world).count(name) for name in world.requests]
    assert max(often) == 3  # it would be 4
    check_outputs(world)


def test_a_settled_sequence_comes_back_when_all_that_it_may_need_is_free() -> None:
    world = World(num_blocks=20, max_seqs=8, budget=64, caching=False, short_sighted=True)
    for number in range(12):
        world.add(make_request(f"r{number}", prompt(20, number), max_tokens=200, ignore_eos=True))
    seen = 0
    while world.step():
        settled = world.scheduler._running.settled
        seen += len(settled)
        missing = [-(-220 // 16) - len(seq.table.blocks) for seq in settled]
        assert sum(missing) <= world.cache.pool.num_available
    assert seen
    check_outputs(world)
