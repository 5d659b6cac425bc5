"""What happens when more comes than blocks and time allow, in virtual time."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from support.scheduling import BLOCK, VOCAB, World, alone, make_request

from foreword.core.request import Request

COST_S = (6e-3, 2e-5, 2e-9, 2e-5, 5e-8)  # of a machine on which many streams cost little more
NUM_REQUESTS = 300


def requests(ends_are_known: bool) -> list[Request]:
    """Some end where they must; the others with a stop token that comes when nobody expects it."""
    rng = Random(3)
    return [
        make_request(
            f"r{number}",
            rng.choices(range(1, VOCAB), k=rng.randint(30, 100)),
            max_tokens=rng.randint(50, 250) if ends_are_known else 400,
            min_tokens=0 if ends_are_known else rng.choice((0, 150)),
            ignore_eos=ends_are_known,
        )
        for number in range(NUM_REQUESTS)
    ]


def serve(asked: list[Request], rate: float, num_blocks: int) -> World:
    """The world after requests that come at a rate."""
    rng, now, arrivals = Random(5), 0.0, []
    for request in asked:
        arrivals.append((now, request))
        now += rng.expovariate(rate)
    world = World(budget=1024, max_seqs=64, num_blocks=num_blocks, coefficients_s=COST_S)
    world.serve(arrivals)
    return world


@pytest.mark.parametrize(("ends_are_known", "most_waste"), [(True, 0.02), (False, 0.1)])
def test_overload_wastes_little_and_is_no_slower(ends_are_known: bool, most_waste: float) -> None:
    """P050: a quarter of the blocks that the streams would like, and all requests at once."""
    asked = requests(ends_are_known)
    wanted = [len(r.prompt_token_ids) + len(alone(r, 0).token_ids) for r in asked]
    num_blocks = 64 * sum(wanted) // NUM_REQUESTS // BLOCK // 4
    overloaded = serve(asked, 1000.0, num_blocks)
    capacity = NUM_REQUESTS / overloaded.now
    assert 4 * capacity < 1000.0
    loaded = serve(asked, capacity, num_blocks)
    totals = overloaded.scheduler.stats.totals
    preempted = Counter(name for plan in overloaded.plans for name in plan.notes.preempted)
    assert all(completion.reason for completion in overloaded.completions.values())
    assert totals.waste_ratio <= most_waste
    assert 0 < max(preempted.values()) <= 3
    assert overloaded.now <= loaded.now / 0.7
