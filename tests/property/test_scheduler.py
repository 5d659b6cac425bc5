"""The scheduler under random load, judged by each request computed alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scheduling import VOCAB, World, check_outputs, make_request

from foreword.config.scheduler import SCHEDULING_POLICIES
from foreword.core.request import Request


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    """Requests whose prompts often share beginnings."""
    stems = draw(st.lists(st.lists(st.integers(1, 5), max_size=60), min_size=1, max_size=3))
    requests = []
    for number in range(draw(st.integers(1, 8))):
        tail = draw(st.lists(st.integers(1, 3), min_size=1, max_size=20))
        max_tokens = draw(st.integers(0, 40))
        requests.append(
            make_request(
                f"r{number}",
                draw(st.sampled_from(stems)) + tail,
                n=draw(st.sampled_from([1, 1, 1, 2, 3])),
                temperature=draw(st.sampled_from([0.0, 1.0])),
                seed=draw(st.integers(0, 3)),
                max_tokens=max_tokens,
                min_tokens=draw(st.integers(0, max_tokens)),
                stop_token_ids=draw(st.lists(st.integers(0, VOCAB - 1), max_size=2)),
                ignore_eos=draw(st.booleans()),
                prompt_logprobs=draw(st.sampled_from([None, None, 0])),
                presence_penalty=draw(st.sampled_from([0.0, 1.0])),
            )
        )
    return requests


worlds = st.builds(
    World,
    budget=st.sampled_from([3, 4, 7, 16, 33, 64]),
    max_seqs=st.integers(3, 8),
    num_blocks=st.integers(8, 30),  # 8: just the longest request alone
    caching=st.booleans(),
    policy=st.sampled_from(SCHEDULING_POLICIES),
    tpot_slo_ms=st.sampled_from([None, 0.1, 5.0]),
    short_sighted=st.booleans(),
)


@given(world=worlds, requests=request_lists(), data=st.data())
@settings(max_examples=150)
def test_every_request_gets_what_it_would_get_alone(
    world: World, requests: list[Request], data: st.DataObject
) -> None:
    for request in requests:
        for _ in range(data.draw(st.integers(0, 12), "steps before the next arrival")):
            world.step()
        world.add(request)
    world.run()
    check_outputs(world)
    assert all(completion.reason for completion in world.completions.values())
    totals = world.scheduler.stats.totals
    if not world.caching:  # then every token is computed once, but for what preemptions undid
        outputs = [len(completion.token_ids) for completion in world.completions.values()]
        prompts = sum(len(request.prompt_token_ids) for request in requests)
        once = prompts + sum(max(0, length - 1) for length in outputs)
        assert totals.computed_tokens == once + totals.recomputed_tokens
    scored = {r.request_id for r in requests if r.params.prompt_logprobs is not None}
    long_enough = {r.request_id for r in requests if len(r.prompt_token_ids) > 1}
    assert set(world.prompt_logprobs) == scored & long_enough


@given(world=worlds, requests=request_lists(), data=st.data())
@settings(max_examples=150)
def test_aborts_and_faults_disturb_nobody_else(
    world: World, requests: list[Request], data: st.DataObject
) -> None:
    names = st.sampled_from([request.request_id for request in requests])
    targets = st.tuples(names, st.sampled_from([None, 0, 1]))
    for request in requests:
        world.add(request)
        for _ in range(data.draw(st.integers(0, 8))):
            action = data.draw(st.sampled_from(["step", "step", "abort", "abort during", "fail"]))
            world.fail_next = action == "fail"
            if action == "abort":
                world.abort(*data.draw(targets))
            world.step(data.draw(targets) if action == "abort during" else None)
            world.fail_next = False
    world.run()
    check_outputs(world)
    assert all(completion.reason for completion in world.completions.values())


@given(world=worlds, requests=request_lists(), data=st.data())
@settings(max_examples=100)
def test_who_makes_steps_fail_harms_nobody_else(
    world: World, requests: list[Request], data: st.DataObject
) -> None:
    names = [request.request_id for request in requests]
    world.poison = set(data.draw(st.lists(st.sampled_from(names), max_size=2), "poison"))
    for request in requests:
        world.add(request)
        for _ in range(data.draw(st.integers(0, 4))):
            world.fail_next = data.draw(st.booleans(), "a fault for once")
            world.step()
    world.fail_next = False
    world.run()
    check_outputs(world)
    assert all(completion.reason for completion in world.completions.values())


@pytest.mark.parametrize("caching", [True, False])
def test_a_pool_that_is_far_too_small_only_costs_time(caching: bool) -> None:
    world = World(budget=16, max_seqs=8, num_blocks=9, caching=caching, short_sighted=True)
    for number in range(8):
        prompt = [1 + number % 2] * 40
        world.add(make_request(f"r{number}", prompt, max_tokens=100, seed=number, ignore_eos=True))
    world.run()
    check_outputs(world)
    assert world.scheduler.stats.totals.preemptions > 0
