from __future__ import annotations

from math import log

import pytest

from foreword.sched.growth import Growth


def endless() -> Growth:
    """Has seen no stream end for long."""
    growth = Growth()
    for _ in range(100):
        growth.observe(60_000, 0, 0)
    return growth


def test_streams_that_end_together_grow_until_then() -> None:
    assert endless().peak([(50, 10)] * 4) == 4 * 50


def test_what_ends_first_makes_room_for_the_rest() -> None:
    growth = endless()
    # when the first ends all have grown by 10; later the last one takes 90 more of its 500
    assert growth.peak([(10, 500), (100, 20)]) == 2 * 10
    # where the first holds little, the end of the last is the worst
    assert growth.peak([(10, 20), (100, 500)]) == 100 - 20


def test_streams_are_expected_to_end_like_those_before() -> None:
    growth = Growth()
    growth.observe(100 * 40 * 10, 10 * 100, 10 * 100)
    growth.observe(40 * 1000 - 128, 999, 999)
    mean = 80_000 / 2000
    alone = growth.peak([(10**6, 0)])
    assert alone == pytest.approx(-mean * log(0.5) + mean)
    # many with much in hand: what ends gives back more than the others take
    assert growth.peak([(10**6, 1000)] * 100) < 100 * mean / 20


def test_one_may_go_on_when_it_should_not_as_far_as_its_limit() -> None:
    growth = Growth()
    growth.observe(40 * 1000 - 128, 999, 999)
    ends_s = -40 * log(0.5)
    assert growth.peak([(10**6, 0)]) == pytest.approx(ends_s + 40)
    assert growth.peak([(50, 0)]) == pytest.approx(50)
    assert growth.peak([(20, 0)]) == pytest.approx(20)


def test_nobody_needs_nothing() -> None:
    assert Growth().peak([]) == 0


def test_old_ends_count_less() -> None:
    growth = Growth()
    growth.observe(60_000, 6_000, 6_000)
    for _ in range(20):
        growth.observe(60_000, 60, 60)
    assert growth.peak([(10**6, 0)]) == pytest.approx(1000 * (log(2) + 1), rel=0.05)
