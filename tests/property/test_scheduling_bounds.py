"""What the order of prompts promises, in virtual time: steps take what the cost model says."""

from __future__ import annotations

from random import Random
from statistics import mean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scheduling import BUDGET, COST_S, VIRTUAL, World, make_request

from foreword.config.scheduler import SCHEDULING_POLICIES
from foreword.core.request import Request, Urgency
from foreword.sched.cost import CostModel, StepLoad

COST = CostModel(COST_S)
Arrivals = list[tuple[float, Request]]


def virtual(policy: str = "shortest", **options: float) -> World:
    return World(**VIRTUAL, policy=policy, **options)


def ask(name: str, num_tokens: int, max_tokens: int = 1) -> Request:
    return make_request(name, [1] * num_tokens, max_tokens=max_tokens, ignore_eos=True)


def alone_s(num_tokens: int) -> float:
    """The time to the first token of a prompt that has the machine to itself."""
    seconds, start = 0.0, 0
    while start < num_tokens:
        left = num_tokens - start
        count = left if left <= BUDGET else BUDGET // 2
        seconds += COST.predict(StepLoad.prompt(count, start))
        start += count
    return seconds


@given(
    longs=st.lists(st.tuples(st.floats(0, 1), st.integers(300, 3000)), min_size=1, max_size=4),
    shorts=st.lists(st.tuples(st.floats(3, 9), st.integers(8, 60)), min_size=1, max_size=12),
    max_tokens=st.sampled_from([1, 20]),
    policy=st.sampled_from(["shortest", "deadline"]),
)
@settings(max_examples=40)
def test_a_short_prompt_never_waits_for_long_ones(
    longs: list[tuple[float, int]], shorts: list[tuple[float, int]], max_tokens: int, policy: str
) -> None:
    """P001, P002: at most three times its TTFT alone and two steps, however long the others are."""
    arrivals = [(at, ask(f"long {n}", size, max_tokens)) for n, (at, size) in enumerate(longs)]
    now, sizes = 0.0, {}
    for number, (gap, size) in enumerate(shorts):  # short ones alone load a third at most
        now += gap * alone_s(size)
        sizes[f"short {number}"] = size
        arrivals.append((now, ask(f"short {number}", size)))
    world = virtual(policy)
    world.serve(arrivals)
    steps_s = 2 * max(world.durations_s)
    for name, size in sizes.items():
        assert world.ttfts_s[name] <= 3 * alone_s(size) + steps_s


@pytest.mark.parametrize("policy", ["shortest", "priority", "deadline"])
def test_endless_short_prompts_cannot_starve_a_long_one(policy: str) -> None:
    size, horizon_s, now, number = 2000, 30.0, 0.0, 0
    arrivals: Arrivals = []
    while now < horizon_s:  # one and a half times what the machine can do
        request = ask(f"short {number}", 40)
        object.__setattr__(request, "urgency", Urgency(priority=-1, ttft_slo_ms=50.0))
        arrivals.append((now, request))
        now += alone_s(40) / 1.5
        number += 1
    arrivals.append((1.0, ask("long", size)))
    world = virtual(policy)
    world.serve(arrivals)
    whole_steps = -(-size // (BUDGET // 4)) * COST.predict(StepLoad.prompt(BUDGET, 0))
    bound_s = 2 * alone_s(size) + whole_steps + 2 * max(world.durations_s)
    assert bound_s < horizon_s / 2
    assert world.ttfts_s["long"] <= bound_s


def beside_one_that_lacks_blocks(policy: str, num_small: int, every_s: float) -> World:
    """A world of 4,000 tokens in which "large" has no room beside a stream, and small ones come."""
    world = World(**{**VIRTUAL, "num_blocks": 250}, policy=policy)
    small = [
        (0.1 + every_s * number, ask(f"small {number}", 100, 5)) for number in range(num_small)
    ]
    world.serve([(0.0, ask("stream", 1500, 200)), (0.05, ask("large", 3000, 20)), *small])
    return world


def test_small_prompts_pass_one_that_lacks_blocks() -> None:
    """P011."""
    large_s = beside_one_that_lacks_blocks("fcfs", 0, 0.0).ttfts_s["large"]
    ttfts_s = beside_one_that_lacks_blocks("fcfs", 7, 0.01).ttfts_s
    small_s = [value for name, value in ttfts_s.items() if name.startswith("small")]
    assert max(small_s) < large_s / 3
    assert ttfts_s["large"] <= 1.1 * large_s


@pytest.mark.parametrize("policy", SCHEDULING_POLICIES)
def test_who_lacks_blocks_is_passed_by_a_quarter_of_its_work_at_most(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P011, while small prompts come endlessly, half again as many as can be served."""
    num_small, every_s = 300, alone_s(100) / 1.5
    world = beside_one_that_lacks_blocks(policy, num_small, every_s)
    with monkeypatch.context() as nobody_passes:
        nobody_passes.setattr("foreword.sched.planner._PASSED_SHARE", 10**9)
        closed = beside_one_that_lacks_blocks(policy, num_small, every_s)
    delay_s = world.ttfts_s["large"] - closed.ttfts_s["large"]
    assert 0 < delay_s <= alone_s(3000) / 4 + 2 * max(world.durations_s)
    assert world.first_s["large"] < num_small * every_s  # while they still come


def test_a_step_that_ends_no_prompt_is_half_a_step() -> None:
    world = virtual()
    world.serve([(0.0, ask("a", 3 * BUDGET)), (0.0, ask("b", 3 * BUDGET))])
    half = BUDGET // 2
    assert world.shares[:5] == [{"a": half}] * 4 + [{"a": 2 * half}]


@pytest.mark.parametrize("size", [100, 1000])
def test_two_equal_prompts_end_after_once_and_twice_the_time(size: int) -> None:
    world = virtual()
    world.serve([(0.0, ask("a", size)), (0.0, ask("b", size))])
    assert world.ttfts_s["a"] == pytest.approx(alone_s(size), rel=0.01)
    assert world.ttfts_s["b"] == pytest.approx(2 * alone_s(size), rel=0.01)


def test_many_short_prompts_share_steps() -> None:
    arrivals = [(0.0, ask(f"r{number}", 8)) for number in range(30)]
    world = virtual()
    world.serve(arrivals)
    assert len(world.plans) < 20
    assert mean(world.ttfts_s.values()) < 0.85 * mean(n * alone_s(8) for n in range(1, 31))


@pytest.mark.parametrize("policy", ["fcfs", "shortest"])
def test_running_streams_keep_their_pace_while_a_long_prompt_is_computed(policy: str) -> None:
    """P005."""
    tpot_slo_s = 0.02
    world = virtual(policy, tpot_slo_ms=1000 * tpot_slo_s)
    world.serve(
        [
            *((0.0, ask(f"stream {number}", 10, max_tokens=400)) for number in range(4)),
            (0.5, ask("long", 3000)),
        ]
    )
    during = [
        duration_s
        for duration_s, share in zip(world.durations_s, world.shares, strict=True)
        if "long" in share and len(share) == 5
    ]
    assert len(during) > 20
    assert max(during) <= tpot_slo_s
    assert median(during) > 0.9 * tpot_slo_s  # and no slower than need be


def test_a_target_that_cannot_be_met_does_not_stop_prompts() -> None:
    world = virtual(tpot_slo_ms=0.1)
    world.serve([(0.0, ask("stream", 10, max_tokens=300)), (0.1, ask("long", 800))])
    assert max(share["long"] for share in world.shares if len(share) == 2) == 16


def mixed(count: int, load: float) -> Arrivals:
    """Nine prompts in ten are short, one is long, at random times."""
    rng, now, arrivals = Random(7), 0.0, []
    for number in range(count):
        long = rng.random() < 0.1
        size = rng.randint(2000, 4000) if long else rng.randint(30, 60)
        arrivals.append((now, ask(f"{'long' if long else 'short'} {number}", size)))
        now += rng.expovariate(1.0) * (0.1 * alone_s(3000) + 0.9 * alone_s(45)) / load
    return arrivals


def test_short_prompts_gain_much_and_long_ones_lose_little() -> None:
    ttfts_s: dict[tuple[str, str], float] = {}
    for policy in ("fcfs", "shortest"):
        world = virtual(policy)
        world.serve(mixed(200, 0.7))
        for kind in ("short", "long"):
            found = [value for name, value in world.ttfts_s.items() if name.startswith(kind)]
            ttfts_s[policy, kind] = median(found)
    assert ttfts_s["shortest", "short"] < ttfts_s["fcfs", "short"] / 10
    assert ttfts_s["shortest", "long"] < ttfts_s["fcfs", "long"] * 1.25


def test_priorities_and_deadlines_decide() -> None:
    for policy, urgencies in {
        "priority": [Urgency(priority=2), Urgency(), Urgency(priority=-3)],
        "deadline": [Urgency(), Urgency(ttft_slo_ms=900.0), Urgency(ttft_slo_ms=300.0)],
    }.items():
        world = virtual(policy)
        for number, urgency in enumerate(urgencies):
            request = ask(f"r{number}", 300)
            object.__setattr__(request, "urgency", urgency)
            world.add(request)
        while world.step():
            pass
        assert sorted(world.ttfts_s, key=lambda name: world.ttfts_s[name]) == ["r2", "r1", "r0"]


def test_what_the_cache_holds_makes_a_prompt_short() -> None:
    world = World(budget=64, num_blocks=200, policy="shortest", coefficients_s=COST_S)
    world.serve([(0.0, make_request("seed", [1, *[5] * 400], max_tokens=1))])
    world.add(make_request("new", [2] * 100, max_tokens=1))
    world.add(make_request("known", [1, *[5] * 410], max_tokens=1))
    world.step()
    assert set(world.shares[-1]) == {"known"}
