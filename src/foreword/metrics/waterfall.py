"""Who was in the way: a request's parts with causes, from what the steps in between computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from foreword.core.trace import HeldBack, StepLog, StepRecord
from foreword.metrics.partition import Part
from foreword.metrics.record import request_of

Cause = Literal["step", "preempted"] | HeldBack
"""Why a request waited: a step was running when it came; it had to give its blocks up; or what
the scheduler said when it planned the steps without it (`HeldBack`)."""


@dataclass(slots=True)
class Stretch:
    """A part, or a piece of one, whose cause is the same from beginning to end.

    Attributes:
        cause: of waiting; None where it is not known (any more).
        tokens_of: prompt tokens computed meanwhile, or in the same step, by request id.
        decodes: streams that got a token meanwhile, in the step with the most of them.
        num_steps: how many steps those figures are of.
        forgotten: whether there were more, of which nothing is known any more.
        chunk, start_token, tokens: for prefill: which of the request's chunks, counted from 0, the
            position of its first token, and how many it has.
    """

    name: str
    began_s: float
    ended_s: float
    cause: Cause | None = None
    tokens_of: dict[str, int] = field(default_factory=dict)
    decodes: int = 0
    num_steps: int = 0
    forgotten: bool = False
    chunk: int | None = None
    start_token: int = 0
    tokens: int = 0

    def take_in(self, step: StepRecord, *, but: str | None = None) -> None:
        """Add what a step computed, but for one prompt."""
        self.num_steps += 1
        for prompt, _, num_tokens in step.notes.chunks:
            if prompt != but:
                request_id = request_of(prompt)
                self.tokens_of[request_id] = self.tokens_of.get(request_id, 0) + num_tokens
        self.decodes = max(self.decodes, step.notes.num_decodes)


def waterfall(parts: Iterable[Part], prompt: str, steps: StepLog) -> list[Stretch]:
    """Give the parts of `partition` their causes.

    Waiting is cut where its cause changes; the stretches add up to the parts.

    Args:
        prompt: the engine's name for what was prompted.
        steps: the engine's; those that have left it are told as forgotten.
    """
    stretches: list[Stretch] = []
    num_chunks = 0
    for part in parts:
        if part.computed is not None:
            stretches.append(_prefill(part, num_chunks))
            num_chunks += 1
        elif part.running is not None:
            stretch = Stretch(part.name, part.began_s, part.ended_s, "step")
            stretch.take_in(part.running)
            stretches.append(stretch)
        elif part.steps is not None:
            stretches += _waiting(part, prompt, steps)
        else:
            stretches.append(Stretch(part.name, part.began_s, part.ended_s))
    return stretches


def _prefill(part: Part, index: int) -> Stretch:
    assert part.computed is not None
    step, chunk = part.computed
    stretch = Stretch(
        part.name,
        part.began_s,
        part.ended_s,
        chunk=index,
        start_token=chunk.start,
        tokens=chunk.num_tokens,
    )
    stretch.take_in(step, but=chunk.request_id)
    return stretch


def _waiting(part: Part, prompt: str, log: StepLog) -> list[Stretch]:
    """Cut a wait where a step was planned that left the request out for another cause."""
    assert part.steps is not None
    first, stop = part.steps
    stretch = Stretch(part.name, part.began_s, part.ended_s, forgotten=log.oldest_number > first)
    stretches = [stretch]
    preempted = False
    for number in range(max(first, log.oldest_number), log.next_number if stop is None else stop):
        step = log.get(number)
        if step is None:  # forgotten just now
            continue
        if step.planned_s >= part.ended_s:
            break
        preempted = preempted or prompt in step.notes.preempted
        cause = "preempted" if preempted else _left_out(prompt, step)
        if cause != stretch.cause and (stretch.num_steps or stretch.forgotten):
            stretch.ended_s = max(step.planned_s, part.began_s)
            stretch = Stretch(part.name, stretch.ended_s, part.ended_s)
            stretches.append(stretch)
        stretch.cause = cause
        stretch.take_in(step)
    return stretches


def _left_out(prompt: str, step: StepRecord) -> Cause | None:
    return "prefix" if prompt in step.notes.deferred else step.notes.held_back
