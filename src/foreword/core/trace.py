"""What is noted while steps run, so that every wait can be explained later. Plain data.

All instants are seconds on the engine's clock. The step loop writes, anyone may read at any time:
what has not happened yet is None. Nothing is worked out here; see `foreword.metrics.waterfall`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

HeldBack = Literal["budget", "sequences", "blocks", "prefix"]
"""Why a prompt got nothing in a step: the step had all the tokens that it was to have, as many
sequences ran as may run at once, too few KV blocks were left, or its beginning was just being
computed for another prompt, to be found in the cache a step later."""

STEPS_KEPT = 2**15


class Chunk(NamedTuple):
    """Tokens of one request that a step computes; a stream's single next token is none.

    Attributes:
        start: position of the first of them.
        num_tokens: how many.
    """

    request_id: str
    start: int
    num_tokens: int


class PlanNotes(NamedTuple):
    """What the scheduler says of a plan beside the plan.

    Attributes:
        num_decodes: streams that got their next token.
        held_back: why the next prompt in line got nothing; None if nobody was left in line.
        deferred: requests that were passed over for their prefix.
        preempted: requests that gave blocks up for this step, once for each sequence.
    """

    chunks: tuple[Chunk, ...] = ()
    num_decodes: int = 0
    held_back: HeldBack | None = None
    deferred: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()


NO_NOTES = PlanNotes()


@dataclass(slots=True)
class StepRecord:
    """One step of the engine.

    Attributes:
        number: counts from 0.
        planned_s: planning began.
        began_s: the backend began.
        predicted_s: how long the backend was expected to take.
        ended_s: the backend was done, or had failed.
        applied_s: the results were taken in and their text was ready to be sent.
        sampling_s: how long sampling took, at the end of what the backend did.
        load: what the duration follows from; see `foreword.sched.cost.StepLoad.features`.
    """

    number: int
    planned_s: float
    began_s: float
    notes: PlanNotes
    predicted_s: float = 0.0
    ended_s: float | None = None
    applied_s: float | None = None
    sampling_s: float = 0.0
    load: tuple[float, ...] = ()

    @property
    def prediction_error(self) -> float:
        """How far the prediction was off, over the time that the backend took."""
        assert self.ended_s is not None
        took_s = max(1e-9, self.ended_s - self.began_s)
        return abs(self.predicted_s - took_s) / took_s

    @property
    def num_tokens(self) -> int:
        """Tokens that were computed."""
        return sum(chunk.num_tokens for chunk in self.notes.chunks) + self.notes.num_decodes


class StepLog:
    """The latest steps, by number. One thread writes, any may read.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int = STEPS_KEPT) -> None:
        self._ring: list[StepRecord | None] = [None] * size
        self.next_number = 0

    def begin(
        self, planned_s: float, began_s: float, notes: PlanNotes, predicted_s: float = 0.0
    ) -> StepRecord:
        """Add a step that is about to run; the oldest is forgotten."""
        record = StepRecord(self.next_number, planned_s, began_s, notes, predicted_s)
        self._ring[record.number % len(self._ring)] = record
        self.next_number += 1
        return record

    @property
    def latest(self) -> StepRecord | None:
        """The step that runs now, or ran last."""
        return self.get(self.next_number - 1) if self.next_number else None

    @property
    def oldest_number(self) -> int:
        """Steps before this one are forgotten."""
        return max(0, self.next_number - len(self._ring))

    def get(self, number: int) -> StepRecord | None:
        """The step of that number; None where it is forgotten or has not begun."""
        record = self._ring[number % len(self._ring)]
        return record if record is not None and record.number == number else None


def cached_by_source(num_cached: int, loaded: Mapping[str, int]) -> dict[str, int]:
    """Cached prompt tokens by where they were when the request came.

    Args:
        num_cached: all of them.
        loaded: tokens that came from a tier, by its name; some may have been evicted since.
    """
    return {"pool": max(0, num_cached - sum(loaded.values())), **loaded}


@dataclass(slots=True)
class RequestTrace:
    """What happened to one prompt in the engine.

    Attributes:
        request_id: the engine's name for it, once it is taken.
        queued_s: the engine took it.
        forecast_s: from then to its first token, as predicted; None: nobody asked.
        step_before: the latest step that had been planned by then. It may have been running. None:
            there was none.
        loads: whether it waits, or has waited, for blocks from other tiers.
        loaded: when it had waited for blocks from other tiers, and the latest step by then; None:
            it did not wait for any.
        num_loaded_tokens: prompt tokens whose blocks came from a tier, by the tier's name.
        load_wait_s: how long it had waited for these.
        chunks: the steps that computed several tokens of it, or any of its prompt, in order; the
            same tokens again after a preemption.
        first_sampled: the step that sampled its first token.
        first_text: the step after which text could be shown for the first time.
        last: the latest step that brought it a token, or its end.
        num_cached_tokens: prompt tokens that came from the prefix cache.
        recompute_s: how long computing those would have taken, as predicted.
        num_output_tokens: tokens sampled, over all of its ``n`` completions.
        preemptions: how often it had to give blocks up.
    """

    request_id: str = ""
    queued_s: float | None = None
    forecast_s: float | None = None
    step_before: StepRecord | None = None
    loads: bool = False
    loaded: tuple[float, StepRecord | None] | None = None
    num_loaded_tokens: dict[str, int] = field(default_factory=dict)
    load_wait_s: float = 0.0
    chunks: list[tuple[StepRecord, Chunk]] = field(default_factory=list)
    first_sampled: StepRecord | None = None
    first_text: StepRecord | None = None
    last: StepRecord | None = None
    num_cached_tokens: int = 0
    recompute_s: float = 0.0
    num_output_tokens: int = 0
    preemptions: int = 0

    @property
    def forecast_error(self) -> float | None:
        """How far the forecast was off, over the time that it was of; None until that is known."""
        first = self.first_sampled
        if self.forecast_s is None or first is None:
            return None
        assert self.queued_s is not None
        assert first.ended_s is not None
        took_s = max(1e-9, first.ended_s - self.queued_s)
        return abs(self.forecast_s - took_s) / took_s

    @property
    def saved_s(self) -> float:
        """What the prefix cache saved: computing, less the wait for blocks; never negative."""
        return max(0.0, self.recompute_s - self.load_wait_s)
