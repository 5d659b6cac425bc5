"""Forecasts of TTFT against what comes, in virtual time: steps take what the cost model says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scheduling import BUDGET, COST_S, VIRTUAL, World, make_request

from foreword.core.request import Request
from foreword.sched import Forecast
from foreword.sched.cost import CostModel


class Foreseen(World):
    """Asks for a forecast of each request before it adds it."""

    def __init__(self, policy: str, **options: object) -> None:
        super().__init__(policy=policy, **{**VIRTUAL, **options})
        self.forecasts_s: dict[str, float] = {}

    def add(self, request: Request, queued_s: float | None = None) -> None:
        at_s = self.now if queued_s is None else queued_s
        forecast = self.foresee(request, at_s)
        self.forecasts_s[request.request_id] = forecast.ttft_s
        super().add(request, queued_s)

    def foresee(self, request: Request, at_s: float | None = None) -> Forecast:
        at_s = self.now if at_s is None else at_s
        return self.scheduler.forecast(self.scheduler.prepare(request), at_s, self.now - at_s)

    @property
    def errors(self) -> list[float]:
        """How far each forecast was off, over the TTFT that came; sorted."""
        came = self.ttfts_s
        return sorted(abs(self.forecasts_s[name] - came[name]) / came[name] for name in came)


def ask(name: str, num_tokens: int, max_tokens: int = 1) -> Request:
    return make_request(name, [1] * num_tokens, max_tokens=max_tokens, ignore_eos=True)


def at(values: list[float], share: float) -> float:
    return values[int(share * (len(values) - 1))]


@given(
    sizes=st.lists(
        st.integers(2, 3000).filter(lambda size: size % BUDGET != 1), min_size=1, max_size=4
    ),
    policy=st.sampled_from(["fcfs", "shortest"]),
)
@settings(max_examples=40)
def test_who_has_the_machine_to_itself_is_foreseen_to_the_microsecond(
    sizes: list[int], policy: str
) -> None:
    """But for a last chunk of one token: a step counts it as a stream's, a forecast does not."""
    world = Foreseen(policy)
    world.serve([(100.0 * number, ask(f"{number}", size)) for number, size in enumerate(sizes)])
    assert world.errors[-1] < 1e-6


@pytest.mark.parametrize("size", [20, 200, 1000])
def test_the_running_step_and_its_prompt_count(size: int) -> None:
    world = Foreseen("fcfs")
    world.serve([(0.0, ask("a", size, max_tokens=50)), (0.005, ask("b", 100))])
    assert world.errors[-1] < 0.03


@pytest.mark.parametrize(
    ("policy", "load", "options", "p50", "p90"),
    [
        ("fcfs", 0.7, {}, 0.05, 0.2),
        ("fcfs", 1.5, {}, 0.15, 0.3),
        ("fcfs", 0.6, {"max_seqs": 8}, 0.05, 0.35),
        ("fcfs", 0.8, {"num_blocks": 300}, 0.1, 0.4),
        ("fcfs", 0.5, {"tpot_slo_ms": 40.0}, 0.05, 0.2),
        ("shortest", 0.7, {}, 0.05, 0.45),  # who comes later and is shorter is not foreseen
        ("shortest", 0.5, {"tpot_slo_ms": 60.0}, 0.05, 0.45),
    ],
)
def test_errors_over_a_mixed_load(
    policy: str, load: float, options: dict[str, float], p50: float, p90: float
) -> None:
    """Nine prompts in ten are short, one is long; answers are of any length."""
    rng, cost, now, arrivals = Random(3), CostModel(COST_S), 0.0, []
    for number in range(160):
        size = rng.randint(600, 2000) if rng.random() < 0.1 else rng.randint(20, 100)
        max_tokens = 1 + int(rng.expovariate(1 / 30))
        arrivals.append((now, ask(f"{number}", size, max_tokens)))
        now += rng.expovariate(1) * (cost.prompt_s(184, 0) + 30 * 8e-4) / load
    world = Foreseen(policy, **options)
    world.serve(arrivals)
    assert at(world.errors, 0.5) <= p50
    assert at(world.errors, 0.9) <= p90


def test_waiting_for_a_slot_is_foreseen() -> None:
    world = Foreseen("fcfs", max_seqs=2)
    world.serve(
        [
            (0.0, ask("a", 10, max_tokens=60)),
            (0.0, ask("b", 10, max_tokens=100)),
            (0.1, ask("c", 10)),
        ]
    )
    assert world.forecasts_s["c"] == pytest.approx(world.ttfts_s["c"], rel=0.1)
    assert world.ttfts_s["c"] > 0.1


def test_waiting_for_blocks_is_foreseen() -> None:
    world = Foreseen("fcfs", num_blocks=30)
    world.serve([(0.0, ask("a", 350, max_tokens=90)), (0.3, ask("b", 200))])
    assert world.forecasts_s["b"] == pytest.approx(world.ttfts_s["b"], rel=0.1)
    assert world.ttfts_s["b"] > 0.1


@pytest.mark.parametrize(
    ("policy", "p50", "p90"),
    [
        ("fcfs", 0.1, 0.3),
        ("shortest", 0.45, 1.4),  # not foreseen: all of one document go before the other one begins
    ],
)
@pytest.mark.parametrize("gap_s", [0.0, 0.004])
def test_a_prefix_that_many_bring_is_counted_once(
    policy: str, p50: float, p90: float, gap_s: float
) -> None:
    """Twenty questions about each of two documents that nobody has asked about before."""
    rng, arrivals = Random(1), []
    for number in range(40):
        question = [3 + number % 28] * rng.randint(20, 60)
        ids = [1 + number % 2] * 700 + question
        request = make_request(f"{number}", ids, max_tokens=1, ignore_eos=True)
        arrivals.append((gap_s * number, request))
    world = Foreseen(policy, caching=True)
    world.serve(arrivals)
    assert sum(plan.num_tokens for plan in world.plans) < 3200
    assert at(world.errors, 0.5) <= p50
    assert at(world.errors, 0.9) <= p90


@given(
    prefixes=st.lists(st.integers(16, 90), min_size=1, max_size=3),
    asked=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 90)), min_size=1, max_size=28),
    policy=st.sampled_from(["fcfs", "shortest"]),
)
def test_the_work_in_line_has_each_prefix_once(
    prefixes: list[int], asked: list[tuple[int, int]], policy: str
) -> None:
    world = World(policy=policy, budget=1)
    asked = [(which % len(prefixes), length) for which, length in asked]
    for number, (which, length) in enumerate(asked):
        ids = [1 + which] * prefixes[which] + [4 + number] * length
        world.add(make_request(f"{number}", ids, max_tokens=1))
    questions = sum(length for _, length in asked)
    documents = sum(prefixes[which] for which in {which for which, _ in asked})
    assert world.scheduler.num_waiting_tokens == questions + documents
    for number in range(len(asked)):
        world.abort(f"{number}")
    assert world.scheduler.num_waiting_tokens == 0
    assert not world.scheduler._beginnings._leaders


def test_an_aged_prompt_takes_its_share() -> None:
    world = Foreseen("shortest")
    arrivals = [(0.0, ask("long", 3000))]
    arrivals += [(0.05 * number, ask(f"{number}", 60)) for number in range(1, 120)]
    world.serve(arrivals)
    assert at(world.errors, 0.5) < 0.1


def test_what_the_cache_holds_is_not_counted() -> None:
    world = Foreseen("shortest", caching=True)
    world.serve([(0.0, ask("first", 1000))])
    assert world.foresee(ask("again", 1000)).ttft_s < 0.01
    assert world.foresee(make_request("other", [2] * 1000)).ttft_s > 0.4


@pytest.mark.parametrize(("policy", "passed"), [("fcfs", []), ("shortest", ["long", "longer"])])
def test_who_would_be_passed_is_said(policy: str, passed: list[str]) -> None:
    world = Foreseen(policy)
    for name, size in (("longer", 500), ("short", 20), ("long", 400)):
        world.add(ask(name, size))
    forecast = world.foresee(ask("new", 30))
    assert list(forecast.behind) == passed
    assert CostModel(COST_S).prompt_s(30, 0) < forecast.work_s < forecast.ttft_s
    assert forecast.delay_s(10.0) >= forecast.work_s


def test_asking_changes_nothing() -> None:
    worlds = [Foreseen("shortest", budget=64, num_blocks=100, caching=True) for _ in "12"]
    for world in worlds:
        for number in range(12):
            world.add(ask(f"{number}", 40 + number, max_tokens=9))
    while worlds[0].step() | worlds[1].step():
        worlds[1].foresee(ask("0", 44))
    assert worlds[0].shares == worlds[1].shares
    assert worlds[0].cache.usage == worlds[1].cache.usage
