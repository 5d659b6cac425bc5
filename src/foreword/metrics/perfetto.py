"""Requests and steps as a trace that ui.perfetto.dev and chrome://tracing show.

Format: Chrome's "Trace Event Format", complete events (``"ph": "X"``), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from foreword.core.trace import StepLog, StepRecord
from foreword.metrics.record import RequestRecord, request_of
from foreword.metrics.waterfall import Stretch, waterfall

_ENGINE, _REQUESTS = 1, 2  # Perfetto's "processes"


def perfetto_trace(records: Sequence[RequestRecord], log: StepLog, now: float) -> dict[str, Any]:
    """Return the trace: a track for the engine's steps, and one for each request.

    Args:
        records: requests, youngest first.
        log: the engine's steps; shown are those since the oldest of the requests came.
        now: where what still goes on is cut off, on the engine's clock.
    """
    oldest_first = list(reversed(records))
    first_s = oldest_first[0].lifetime.received_s if oldest_first else now
    steps = list(_steps_since(first_s, log))
    origin_s = min([first_s, *(step.planned_s for step in steps[:1])])
    events = [
        _name("process_name", _ENGINE, 0, "engine"),
        _name("thread_name", _ENGINE, 0, "steps"),
        _name("process_name", _REQUESTS, 0, "requests"),
    ]
    for step in steps:
        events += _step_events(step, origin_s, now)
    for track, record in enumerate(oldest_first):
        events.append(_name("thread_name", _REQUESTS, track, record.id))
        events += _request_events(record, track, log, origin_s, now)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _steps_since(instant_s: float, log: StepLog) -> Iterator[StepRecord]:
    for number in range(log.oldest_number, log.next_number):
        step = log.get(number)
        if step is not None and (step.applied_s is None or step.applied_s > instant_s):
            yield step


def _step_events(step: StepRecord, origin_s: float, now: float) -> Iterator[dict[str, Any]]:
    notes = step.notes
    args: dict[str, Any] = {
        "tokens": step.num_tokens,
        "decodes": notes.num_decodes,
        "prompts": {request_of(chunk.request_id): chunk.num_tokens for chunk in notes.chunks},
    }
    if notes.held_back is not None:
        args["held_back"] = notes.held_back
    if notes.preempted:
        args["preempted"] = sorted(map(request_of, notes.preempted))
    instants = (step.planned_s, step.began_s, step.ended_s, step.applied_s)
    for name, began_s, ended_s in zip(
        ("plan", f"step {step.number}", "apply"), instants, instants[1:], strict=False
    ):
        if began_s is not None:
            yield _event(name, _ENGINE, 0, began_s, ended_s or now, origin_s, args)


def _request_events(
    record: RequestRecord, track: int, log: StepLog, origin_s: float, now: float
) -> Iterator[dict[str, Any]]:
    for stretch in waterfall(record.parts(now), record.trace.request_id, log):
        name = f"{stretch.name}: {stretch.cause}" if stretch.cause else stretch.name
        began_s, ended_s = stretch.began_s, stretch.ended_s
        yield _event(name, _REQUESTS, track, began_s, ended_s, origin_s, _stretch_args(stretch))
    life = record.lifetime
    if life.first_written_s is not None:
        args = {"status": record.status, "tokens": record.usage.generated}
        ended_s = life.ended_s or now
        yield _event("answer", _REQUESTS, track, life.first_written_s, ended_s, origin_s, args)


def _stretch_args(stretch: Stretch) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if stretch.chunk is not None:
        args |= {"start_token": stretch.start_token, "tokens": stretch.tokens}
    if stretch.tokens_of:
        args["others"] = stretch.tokens_of
    if stretch.decodes:
        args["decodes"] = stretch.decodes
    return args


def _event(
    name: str,
    process: int,
    track: int,
    began_s: float,
    ended_s: float,
    origin_s: float,
    args: dict[str, Any],
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": track,
        "ts": round((began_s - origin_s) * 1e6, 3),
        "dur": round((ended_s - began_s) * 1e6, 3),
        "args": args,
    }
