"""Decides, step by step, which tokens of which sequences are computed."""

from foreword.sched.cost import CostModel, StepLoad
from foreword.sched.forecast import Forecast
from foreword.sched.outputs import SchedulerStats, SequenceUpdate
from foreword.sched.scheduler import Scheduler
from foreword.sched.sequence import Sequence

__all__ = [
    "CostModel",
    "Forecast",
    "Scheduler",
    "SchedulerStats",
    "Sequence",
    "SequenceUpdate",
    "StepLoad",
]
