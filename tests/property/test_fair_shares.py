"""Tenants share the machine, in virtual time and beside a slow, obvious twin."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scheduling import BUDGET, COST_S, VIRTUAL, World, check_outputs, make_request

from foreword.config.scheduler import SCHEDULING_POLICIES
from foreword.core.request import Request
from foreword.sched.cost import CostModel, StepLoad
from foreword.sched.fair import Turns

QUANTUM = 256


def ask(name: str, num_tokens: int, tenant: str, max_tokens: int = 1) -> Request:
    request = make_request(name, [1] * num_tokens, max_tokens=max_tokens, ignore_eos=True)
    return replace(request, tenant=tenant)


def alone_s(num_tokens: int) -> float:
    """The time to the first token of a prompt that has the machine to itself, in half steps."""
    cost, half = CostModel(COST_S), BUDGET // 2
    starts = range(0, num_tokens, half)
    return sum(cost.predict(StepLoad.prompt(min(half, num_tokens - at), at)) for at in starts)


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
@pytest.mark.parametrize(("flood", "size"), [((50, 1500), 50), ((500, 40), 1500)])
def test_a_flood_costs_another_tenant_no_more_than_its_own_share(
    policy: str, flood: tuple[int, int], size: int
) -> None:
    """Twice its time alone, since two share; the share of aged prompts; and steps to begin with."""
    count, length = flood
    world = World(**VIRTUAL, policy=policy)
    arrivals = [(0.0, ask(f"flood {n}", length, "greedy")) for n in range(count)]
    world.serve([*arrivals, (1.0, ask("modest", size, "other"))])
    steps_s = 4 * max(world.durations_s)
    assert world.ttfts_s["modest"] <= 2 * alone_s(size) * 4 / 3 + steps_s
    last = max(world.ttfts_s.values())
    assert world.ttfts_s["modest"] < last / 5  # the bound says something


def test_tenants_with_much_to_do_have_as_much_each() -> None:
    rng, world = Random(2), World(**VIRTUAL, policy="shortest")
    sizes = {"a": (30, 60), "b": (500, 900), "c": (1500, 2500)}
    for tenant, (low, high) in sizes.items():
        for number in range(40_000 // high):
            world.add(ask(f"{tenant}{number}", rng.randint(low, high), tenant))
    done = dict.fromkeys(sizes, 0)
    while min(done.values()) < 12_000:
        world.step()
        for name, tokens in world.shares[-1].items():
            done[name[0]] += tokens
    assert max(done.values()) <= min(done.values()) + 2 * (QUANTUM + BUDGET)


def test_answers_count() -> None:
    """Long answers to short prompts weigh like long prompts: each of their tokens counts twice."""
    world = World(**VIRTUAL, policy="shortest")
    shapes = {"writer": (40, 80), "reader": (400, 1)}
    for tenant, (num_prompt, num_answer) in shapes.items():
        for number in range(500):
            request = ask(f"{tenant} {number}", num_prompt, tenant, num_answer)
            world.add(request)
    had = dict.fromkeys(shapes, 0)
    while min(had.values()) < 50_000:
        world.step()
        for tenant, (num_prompt, num_answer) in shapes.items():
            begun = sum(name.startswith(tenant) for name in world.first_s)
            had[tenant] = begun * (num_prompt + 2 * num_answer)
            assert begun < 500
    assert max(had.values()) <= 1.1 * min(had.values())


@given(
    policy=st.sampled_from(SCHEDULING_POLICIES),
    tenants=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    num_blocks=st.integers(8, 30),
    data=st.data(),
)
@settings(max_examples=60)
def test_everybody_is_served_whatever_the_tenants(
    policy: str, tenants: list[str], num_blocks: int, data: st.DataObject
) -> None:
    world = World(policy=policy, num_blocks=num_blocks, short_sighted=data.draw(st.booleans()))
    for number, tenant in enumerate(tenants):
        size = data.draw(st.integers(1, 80))
        request = make_request(f"r{number}", [1 + number % 5] * size, max_tokens=20)
        world.add(replace(request, tenant=tenant))
        for _ in range(data.draw(st.integers(0, 4))):
            world.step()
    world.run()
    check_outputs(world)
    assert all(completion.reason for completion in world.completions.values())


def served_by_packets(work: dict[str, list[int]]) -> list[str]:
    """Deficit round robin as the paper has it, but for overdrafts: whose packet goes next."""
    left, order = dict.fromkeys(work, 0), []
    queues = {tenant: list(sizes) for tenant, sizes in work.items()}
    while any(queues.values()):
        for tenant, queue in queues.items():
            left[tenant] += QUANTUM
            while queue and left[tenant] > 0:
                left[tenant] -= queue.pop(0)
                order.append(tenant)
    return order


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.integers(1, 700), min_size=1, max_size=20), min_size=1
    )
)
def test_turns_are_those_of_deficit_round_robin(work: dict[str, list[int]]) -> None:
    turns, order = Turns(), []
    queues = {tenant: list(sizes) for tenant, sizes in work.items()}
    turns.keep(queues)
    while left := [tenant for tenant, queue in queues.items() if queue]:
        tenant = turns.first(left)
        turns.take(tenant, queues[tenant].pop(0))
        order.append(tenant)
    assert order == served_by_packets(work)
