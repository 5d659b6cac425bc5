"""A line in the log when KV blocks run out."""

from __future__ import annotations

import logging

from foreword.sched import SchedulerStats

logger = logging.getLogger(__name__)

_QUIET_S = 10.0  # between two lines


class PreemptionLog:
    """Tells of preemptions, all since the last line in one, seldom enough to be read."""

    def __init__(self) -> None:
        self._told = 0
        self._told_s = float("-inf")

    def note(self, stats: SchedulerStats, now: float) -> None:
        """Take in that a step preempted sequences."""
        if now - self._told_s < _QUIET_S:
            return
        totals, blocks = stats.totals, stats.blocks
        logger.warning(
            "KV blocks ran out: %d sequences gave theirs up and will be computed again "
            "(%d of %d blocks in use, %d sequences run, %d wait; %.1f %% of all computed tokens "
            "were computed before)",
            totals.preemptions - self._told,
            blocks.referenced,
            blocks.total,
            stats.num_running,
            stats.num_waiting,
            100 * totals.waste_ratio,
        )
        self._told, self._told_s = totals.preemptions, now
