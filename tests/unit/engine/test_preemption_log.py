from __future__ import annotations

import logging

import pytest

from foreword.engine.preemption_log import PreemptionLog
from foreword.kv import KVUsage
from foreword.sched.outputs import Counters, SchedulerStats


def test_a_burst_is_one_line_and_the_next_tells_what_came_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P052."""
    log, usage = PreemptionLog(), KVUsage(total=64, free=0, cached=2, referenced=62)
    with caplog.at_level(logging.WARNING):
        for number in range(1, 100):
            totals = Counters(computed_tokens=1000, recomputed_tokens=25, preemptions=number)
            log.note(SchedulerStats(3, 7, 70, usage, totals), 5.0 + number / 8)
    first, second = (record.getMessage() for record in caplog.records)
    assert first == (
        "KV blocks ran out: 1 sequences gave theirs up and will be computed again "
        "(62 of 64 blocks in use, 3 sequences run, 7 wait; 2.5 % of all computed tokens "
        "were computed before)"
    )
    assert " 80 sequences gave theirs up" in second
