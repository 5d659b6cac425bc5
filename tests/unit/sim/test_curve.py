from __future__ import annotations

from itertools import pairwise

from foreword.kv import KVUsage
from foreword.sched import SchedulerStats
from foreword.sched.outputs import Counters
from foreword.sim.curve import Curve


def test_a_long_run_has_few_points_over_its_whole_length() -> None:
    curve, looked = Curve(), 0

    def look() -> SchedulerStats:
        nonlocal looked
        looked += 1
        return SchedulerStats(
            num_running=1,
            num_waiting=2,
            num_waiting_tokens=3,
            blocks=KVUsage(1, 1, 0, 0),
            totals=Counters(computed_tokens=looked),
        )

    for number in range(100_000):
        curve.note(number * 0.01, look)
    points = curve.points
    assert 200 < len(points) <= 512
    assert points[0].at_s == 0.0
    assert points[-1].at_s > 995
    gaps_s = [later.at_s - earlier.at_s for earlier, later in pairwise(points)]
    assert max(gaps_s) < 3 * min(gaps_s)
    assert looked < 10_000  # looking costs something
