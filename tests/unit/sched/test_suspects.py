"""What becomes of a step that fails."""

from __future__ import annotations

import pytest
from support.scheduling import World, check_outputs, make_request, prompt

from foreword.core.request import FinishReason


def failed(world: World) -> set[str]:
    return {
        name for (name, _), each in world.completions.items() if each.reason is FinishReason.ERROR
    }


def full_of_streams(count: int, **options: int) -> World:
    world = World(max_seqs=count, budget=512, num_blocks=200, **options)
    for number in range(count):
        world.add(make_request(f"r{number}", prompt(9, number), max_tokens=12, ignore_eos=True))
    world.step()
    return world


def test_a_fault_that_does_not_come_again_ends_nobody() -> None:
    world = full_of_streams(8)
    world.fail_next = True
    world.run()
    assert not failed(world)
    check_outputs(world)


def test_one_bad_request_among_many_is_found_in_few_steps_and_ends_alone() -> None:
    good = full_of_streams(32)
    good.run()
    world = full_of_streams(32)
    world.poison = {"r13"}
    world.run()
    assert failed(world) == {"r13"}
    check_outputs(world)
    assert len(world.plans) <= len(good.plans) + 2 * 5  # log2(32)


def test_it_may_come_again_and_again() -> None:
    world = full_of_streams(8)
    world.poison = {f"bad {number}" for number in range(3)}
    for name in sorted(world.poison):
        world.add(make_request(name, prompt(20, 9), max_tokens=5, ignore_eos=True))
        for _ in range(9):
            world.step()
    world.run()
    assert failed(world) == world.poison
    check_outputs(world)


def test_several_bad_ones_are_all_found() -> None:
    world = full_of_streams(16)
    world.poison = {"r0", "r7", "r8", "r15"}
    world.run()
    assert failed(world) == world.poison
    check_outputs(world)


@pytest.mark.parametrize("poison", ["forks", "continues", "old"])
def test_copies_of_blocks_are_made_again(poison: str) -> None:
    world = World(max_seqs=8, budget=512, num_blocks=60)
    world.add(make_request("before", prompt(40), max_tokens=3, ignore_eos=True))
    world.run()
    world.add(make_request("old", prompt(20, 5), max_tokens=30, ignore_eos=True))
    world.add(make_request("forks", prompt(20, 6), n=3, max_tokens=30, ignore_eos=True, seed=1))
    world.step()
    world.add(make_request("continues", [*prompt(38), 3, 4], max_tokens=30, ignore_eos=True))
    world.fail_next = True
    world.step()  # which copies for those that part, and for the one that begins inside a block
    assert len(world.plans[-1].block_copies) == 3
    world.poison = {poison}
    world.run()
    assert failed(world) == {poison}
    check_outputs(world)


def test_who_leaves_meanwhile_is_not_tried_again() -> None:
    world = full_of_streams(4)
    world.fail_next = True
    world.step()
    for name in ("r0", "r1"):
        world.abort(name)
    world.step()
    assert {name for name, tokens in world.shares[-1].items() if tokens} == {"r2", "r3"}
    world.run()
    check_outputs(world)


def test_nothing_else_is_planned_until_the_parts_are_tried() -> None:
    world = full_of_streams(4)
    world.fail_next = True
    world.step()
    world.add(make_request("new", prompt(9, 9), max_tokens=2))
    for expected in ({"r0", "r1"}, {"r2", "r3"}):
        world.step()
        assert set(world.shares[-1]) == expected
    world.run()
    check_outputs(world)
