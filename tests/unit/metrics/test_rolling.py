"""The rolling statistics of the last hour, on a clock of the test's own."""

from __future__ import annotations

from itertools import pairwise

import pytest

from foreword.core.trace import RequestTrace
from foreword.metrics.lifetime import Lifetime
from foreword.metrics.record import RequestRecord, Status, TokenCounts
from foreword.metrics.rolling import SLOT_S, RollingStats, total


class Clock:
    def __init__(self) -> None:
        self.now_s = 100_000.0

    def __call__(self) -> float:
        return self.now_s


def record(ttft_s: float | None, status: Status = "finished") -> RequestRecord:
    life = Lifetime(10.0, first_written_s=None if ttft_s is None else 10.0 + ttft_s)
    life.ended_s = 20.0
    return RequestRecord(
        id="r",
        endpoint="/v1/completions",
        model="m",
        stream=True,
        completions=1,
        lifetime=life,
        received_unix_s=0.0,
        trace=RequestTrace(),
        status=status,
        usage=TokenCounts(prompt=10, cached=4, generated=3),
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stats(clock: Clock) -> RollingStats:
    return RollingStats(clock)


def test_what_ended_stands_in_the_slot_of_its_time(stats, clock):
    stats.ended(record(0.5))
    clock.now_s += SLOT_S
    stats.ended(record(0.1))
    stats.ended(record(None, "aborted"))
    stats.error(404)
    *_, earlier, now = stats.slots(60, SLOT_S)
    assert earlier.begin_s + SLOT_S == now.begin_s <= clock.now_s < now.begin_s + SLOT_S
    assert (earlier.ttft_s.count, earlier.ttft_s.max) == (1, 0.5)
    assert now.statuses == {"finished": 1, "aborted": 1}
    assert now.errors == {404: 1}
    assert (now.prompt_tokens, now.cached_tokens, now.generated_tokens) == (20, 8, 6)
    assert now.ttft_s.count == 1
    assert sum(now.parts_s.values()) == pytest.approx(0.1)


@pytest.mark.parametrize("slot_s", [SLOT_S, 3 * SLOT_S, 12 * SLOT_S])
def test_a_window_has_all_of_its_spans(stats, clock, slot_s):
    window_s = 60 * slot_s
    stats.ended(record(0.2))
    clock.now_s += window_s - slot_s
    stats.ended(record(0.3))
    spans = stats.slots(window_s, slot_s)
    assert len(spans) == 60
    assert {later.begin_s - sooner.begin_s for sooner, later in pairwise(spans)} == {slot_s}
    assert [at for at, span in enumerate(spans) if span.statuses] == [0, 59]
    assert total(spans).ttft_s.count == 2


def test_the_old_leave_the_window(stats, clock):
    stats.ended(record(0.2))
    clock.now_s += 60
    assert not total(stats.slots(60, SLOT_S)).statuses


def test_memory_is_bounded_by_the_hour(stats, clock):
    for _ in range(2000):
        stats.ended(record(0.2))
        clock.now_s += SLOT_S
    assert len(stats._slots) == 3600 // SLOT_S


def test_reading_changes_nothing(stats):
    stats.ended(record(0.2))
    for _ in range(2):
        assert total(stats.slots(60, SLOT_S)).ttft_s.count == 1
