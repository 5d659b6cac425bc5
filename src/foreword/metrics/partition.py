"""A request's time to first token, cut into parts without gap or overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from foreword.core.trace import Chunk, RequestTrace, StepRecord
from foreword.metrics.lifetime import Lifetime

PARTS = {
    "read": "the head was read → the body was read",
    "parse": "JSON decoded and checked",
    "template": "the chat template applied",
    "tokenise": "text turned into token ids",
    "handover": "on the way to the engine, and to a step that takes it at once",
    "kv_load": "waiting for blocks from memory or disk",
    "queue": "waiting for its first step",
    "schedule": "a step with its tokens was planned, the prefix cache looked up",
    "prefill": "the backend computed a chunk of its prompt",
    "gap": "steps without it between two of its chunks",
    "sample": "its first token was drawn",
    "decode": "more tokens, until there was text that could be shown",
    "detokenise": "results were taken in and turned into text",
    "deliver": "on the way back from the step loop",
    "write": "JSON made and written to the socket",
}
"""All parts in the order in which they happen, and what they are."""


@dataclass(slots=True)
class Part:
    """A stretch of a request's time.

    Attributes:
        name: one of `PARTS`.
        steps: for waiting: the numbers of the steps that it waited through, first and one past the
            last (None: it still waits).
        running: for waiting: the step that was running already when the request came.
        computed: for prefill: the step, and what it computed of the request.
    """

    name: str
    began_s: float
    ended_s: float
    steps: tuple[int, int | None] | None = None
    running: StepRecord | None = None
    computed: tuple[StepRecord, Chunk] | None = None


def partition(life: Lifetime, trace: RequestTrace, end_s: float, *, whole: bool) -> list[Part]:
    """Cut the time from ``life.received_s`` to ``end_s``.

    Each part begins where the one before it ended, so they add up. A part that took no time is
    left out, and so is what comes after ``end_s``; the part that is under way then ends there.

    Args:
        whole: whether the answer is written in one piece, so that its first content has to wait
            for its last token.
    """
    cut = _Cut(life.received_s, end_s)
    cut.until("read", life.read_s)
    cut.until("parse", life.parsed_s)
    if life.templated_s is not None:
        cut.until("template", life.templated_s)
    cut.until("tokenise", life.tokenised_s)
    _wait(cut, trace)
    _compute(cut, trace)
    if life.delivered_s is None and life.ended_s is None:
        cut.until("decode", None)
    answer = trace.last if whole or trace.first_text is None else trace.first_text
    if answer is not None:
        cut.until("decode", answer.ended_s)
        cut.until("detokenise", answer.applied_s)
    cut.until("deliver", life.delivered_s)
    cut.until("write", life.first_written_s)
    return cut.parts


def seconds_by_part(parts: Iterable[Part]) -> dict[str, float]:
    """Add up parts of one name."""
    sums: dict[str, float] = {}
    for part in parts:
        sums[part.name] = sums.get(part.name, 0.0) + part.ended_s - part.began_s
    return sums


class _Cut:
    """Cuts a stretch of time from its beginning to its end."""

    def __init__(self, began_s: float, end_s: float) -> None:
        self._cursor_s = began_s
        self._end_s = end_s
        self.parts: list[Part] = []

    def until(
        self,
        name: str,
        instant_s: float | None,
        **details: Any,
    ) -> None:
        """Give the time up to ``instant_s`` to a part; None: it is not over, and takes the rest.

        ``details`` are the other attributes of the `Part`.
        """
        stop_s = self._end_s if instant_s is None or instant_s > self._end_s else instant_s
        if stop_s <= self._cursor_s:
            return
        if self.parts and self.parts[-1].name == name and not details:
            self.parts[-1].ended_s = stop_s
        else:
            self.parts.append(Part(name, self._cursor_s, stop_s, **details))
        self._cursor_s = stop_s


def _wait(cut: _Cut, trace: RequestTrace) -> None:
    """The way into the engine, up to the plan of the first step with a token of the request."""
    cut.until("handover", trace.queued_s)
    before = trace.step_before
    if before is not None:
        cut.until("queue", before.applied_s, running=before)
    if trace.loads:
        loaded_s, before = trace.loaded or (None, before)
        cut.until("kv_load", loaded_s)
    next_number = 0 if before is None else before.number + 1
    first = trace.chunks[0][0] if trace.chunks else None
    if first is not None and first.number == next_number:
        cut.until("handover", first.planned_s)
        return
    if first is None:
        cut.until("queue", None, steps=(next_number, None))
    else:
        cut.until("queue", first.planned_s, steps=(next_number, first.number))


def _compute(cut: _Cut, trace: RequestTrace) -> None:
    """The prompt's chunks and the time between them, up to the first token."""
    sampled = trace.first_sampled
    previous: StepRecord | None = None
    for step, chunk in trace.chunks:
        if sampled is not None and step.number > sampled.number:
            return  # computed again, after a preemption that came later
        if previous is not None and step.number > previous.number + 1:
            steps = (previous.number + 1, step.number)
            cut.until("gap", step.planned_s, steps=steps)
        cut.until("schedule", step.began_s)
        if step is sampled and step.ended_s is not None:
            cut.until("prefill", step.ended_s - step.sampling_s, computed=(step, chunk))
            cut.until("sample", step.ended_s)
        else:
            cut.until("prefill", step.ended_s, computed=(step, chunk))
        previous = step
    if previous is not None and trace.last is None:
        cut.until("gap", None, steps=(previous.number + 1, None))
