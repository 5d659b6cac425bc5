"""Prompts in line move as the cache comes to hold more or less of them."""

from __future__ import annotations

from random import Random

from support.scheduling import BUDGET, VIRTUAL, World, make_request

from foreword.core.request import Request


def about(document: int, name: str, size: int, question: int) -> Request:
    rng = Random(name)
    ids = [1 + document] * size + [rng.randrange(3, 32) for _ in range(question)]
    return make_request(name, ids, max_tokens=1, ignore_eos=True)


def virtual() -> World:
    return World(**{**VIRTUAL, "caching": True}, policy="shortest")


def order(world: World) -> list[str]:
    return sorted(world.first_s, key=world.first_s.__getitem__)


def test_who_asks_about_what_was_computed_meanwhile_goes_first() -> None:
    world = virtual()
    first = about(0, "first", 1000, 10)
    shorter, longer = about(1, "shorter", 900, 10), about(0, "longer", 1000, 200)
    world.serve([(0.0, first), (0.01, shorter), (0.02, longer)])
    assert order(world) == ["first", "longer", "shorter"]
    assert world.num_computed("longer") <= 208


def test_what_is_being_computed_is_not_computed_twice() -> None:
    world = virtual()
    size = 4 * BUDGET
    shorter = [about(0, f"shorter {number}", size, 5 + number) for number in range(4)]
    world.serve([(0.0, about(0, "first", size, 60)), *((0.01, each) for each in shorter)])
    assert order(world)[0] == "first"
    assert sum(plan.num_tokens for plan in world.plans) <= size + 60 + 4 * 24
