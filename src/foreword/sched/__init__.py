"""Decides, step by step, which tokens of which sequences are computed."""

from foreword.sched.outputs import SchedulerStats, SequenceUpdate
from foreword.sched.policy import FirstComeFirstServed, Policy
from foreword.sched.scheduler import Scheduler
from foreword.sched.sequence import Sequence

__all__ = [
    "FirstComeFirstServed",
    "Policy",
    "Scheduler",
    "SchedulerStats",
    "Sequence",
    "SequenceUpdate",
]
