from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.scheduling import World, check_outputs, make_request, prompt

from foreword.config.scheduler import SCHEDULING_POLICIES
from foreword.sched.outputs import Counters


@pytest.mark.parametrize("length", [*range(1, 35), 47, 48, 49, 127, 128, 129])
def test_a_hit_changes_nothing_but_the_work(length: int) -> None:
    world = World(budget=200)
    for name in ("cold", "warm"):
        world.add(make_request(name, prompt(length), max_tokens=4, ignore_eos=True, seed=3))
        world.run()
    check_outputs(world)
    hit = length - 1  # the last token is always computed
    cached = [update.num_cached_tokens for update in world.updates]
    assert cached == [0] * 4 + [hit] * 4
    assert world.num_computed("warm") == length - hit + 3


def test_another_prompt_in_between_does_not_lose_the_first() -> None:
    world = World(budget=200, num_blocks=24)
    for name, first in (("a", 1), ("b", 3), ("again", 1)):
        world.add(make_request(name, prompt(130, first), max_tokens=1))
        world.run()
    assert world.updates[-1].num_cached_tokens == 129


def test_a_growing_conversation_computes_only_what_is_new() -> None:
    world = World(budget=600, num_blocks=60)
    history: list[int] = []
    computed_before = 0
    for turn in range(10):
        history += [turn + 1] * 20
        name = f"turn {turn}"
        world.add(make_request(name, history, max_tokens=10, ignore_eos=True))
        world.add(make_request(f"other {turn}", prompt(40, 20 + turn), max_tokens=1))
        world.run()
        history += world.completions[name, 0].token_ids
        assert world.num_computed(name) == len(history) - 1 - computed_before
        computed_before = len(history) - 1  # the last token has not been computed yet


@pytest.mark.parametrize(
    "options",
    [
        *({"policy": policy} for policy in SCHEDULING_POLICIES),
        {"budget": 16},
        {"tpot_slo_ms": 50.0},
        {"num_blocks": 13},
    ],
)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n": 2},
        {"logprobs": 3},
        {"presence_penalty": 1.0},
        {"min_tokens": 2},
        {"max_tokens": 0},
    ],
)
def test_no_option_costs_hits(options: dict[str, Any], params: dict[str, Any]) -> None:
    """P032: the second question about a document finds all of it, whatever is set."""
    world = World(**{"max_seqs": 2, "budget": 64, **options})
    for question, name in enumerate(("first", "second"), start=20):
        asked = {"max_tokens": 2, "ignore_eos": True, **params}
        world.add(make_request(name, [*prompt(150), question], **asked))
        world.run()
    assert world.updates[-1].num_cached_tokens == 150
    check_outputs(world)


def test_scoring_is_complete_whatever_is_cached() -> None:
    world = World(budget=50)
    for name in ("cold", "warm"):
        world.add(make_request(name, prompt(70), max_tokens=2, ignore_eos=True, prompt_logprobs=2))
        world.run()
    assert world.prompt_logprobs["cold"] == world.prompt_logprobs["warm"]
    assert len(world.prompt_logprobs["cold"]) == 69
    assert world.updates[-1].num_cached_tokens == 0


def test_what_is_found_again_after_a_preemption_is_no_hit() -> None:
    world = World(num_blocks=16, max_seqs=4, budget=64, short_sighted=True)
    for number in range(4):
        world.add(make_request(f"r{number}", prompt(33, number), max_tokens=60, ignore_eos=True))
    world.run()
    totals = world.scheduler.stats.totals
    assert totals.preemptions > 0
    assert totals.cached_prompt_tokens == 0
    assert totals.prompt_tokens == 4 * 33
    assert {update.num_cached_tokens for update in world.updates} == {0}


def test_what_was_loaded_and_lost_again_is_no_hit() -> None:
    counters = Counters()
    counters.admit(100, 48, {"memory": 32, "disk": 64})
    counters.admit(100, 0, {"disk": 64})
    assert counters.loaded_prompt_tokens == {"memory": 32, "disk": 16}
    assert (counters.prompt_tokens, counters.cached_prompt_tokens) == (200, 48)


def test_unique_prompts_leave_nothing_behind() -> None:
    world = World(num_blocks=16)
    for number in range(100):
        ids = [1 + number % 20, 1 + number // 20, *prompt(10 + number % 40)]
        world.add(make_request(f"r{number}", ids, max_tokens=2))
        world.run()
    assert world.cache.prefixes is not None
    assert len(world.cache.prefixes) == world.cache.usage.cached <= 16
    assert not world.scheduler._requests


def test_a_prefix_in_the_making_is_waited_for() -> None:
    world = World(budget=400)
    for last, name in enumerate(("a", "b", "c"), 10):
        world.add(make_request(name, [*prompt(100), last], max_tokens=1))
    world.add(make_request("other", prompt(50, 30), max_tokens=1))
    world.run()
    assert [sorted(share) for share in world.shares] == [["a", "other"], ["b", "c"]]
    assert world.num_computed("b") == world.num_computed("c") == 1
    check_outputs(world)


def test_a_prefix_in_the_making_is_not_waited_for_without_a_gain() -> None:
    world = World(budget=400, num_blocks=40)
    world.add(make_request("a", prompt(100), max_tokens=1))
    world.add(make_request("short", prompt(15), max_tokens=1))  # no whole block in common
    world.add(make_request("scored", prompt(100), max_tokens=1, prompt_logprobs=0))
    salted = replace(make_request("salted", prompt(100), max_tokens=1), cache_salt="s")
    world.add(salted)
    world.run()
    assert len(world.plans) == 1


def test_salts_keep_requests_apart() -> None:
    world = World(budget=400)
    for name, salt in (("a", ""), ("b", "x"), ("c", "y"), ("d", "x")):
        world.add(replace(make_request(name, prompt(100), max_tokens=1), cache_salt=salt))
        world.run()
    assert [update.num_cached_tokens for update in world.updates] == [0, 0, 0, 99]
