"""Where a request's time went, as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foreword.core.trace import RequestTrace, cached_by_source
from foreword.metrics.record import RequestRecord
from foreword.metrics.waterfall import Stretch, waterfall
from foreword.server.service import Service

_MOST_NAMED = 20  # requests that are named as having been in the way of one part
_ACTIVE = {"backend": "backend", "isa": "isa", "compute": "compute", "num_threads": "threads"}


def timing_now(service: Service, record: RequestRecord) -> dict[str, Any]:
    """Return the waterfall of a request for its own answer, which is about to be written.

    An answer that is written whole cannot hold the time of its own writing: its TTFT ends here.
    """
    if record.lifetime.first_written_s is None and not record.stream:
        now = time.monotonic()
        life = replace(record.lifetime, first_written_s=now, last_written_s=now)
        record = replace(record, lifetime=life)
    return waterfall_json(service, record)


def waterfall_json(service: Service, record: RequestRecord) -> dict[str, Any]:
    """Return a request with its parts one by one; they add up to its ``ttft_ms``."""
    parts = record.parts(time.monotonic())
    began_s = record.lifetime.received_s
    stretches = waterfall(parts, record.trace.request_id, service.engine.steps)
    shown = [_stretch_json(stretch, began_s) for stretch in stretches]
    return {**_head(service, record), "parts": [part for part in shown if part["duration_ms"]]}


def summary_json(service: Service, record: RequestRecord) -> dict[str, Any]:
    """Return a request with the sums of its parts."""
    began_s = record.lifetime.received_s
    sums_ms: dict[str, float] = {}
    for part in record.parts(time.monotonic()):
        duration_ms = _ms(part.ended_s - began_s) - _ms(part.began_s - began_s)
        sums_ms[part.name] = round(sums_ms.get(part.name, 0.0) + duration_ms, 3)
    shown = {name: sum_ms for name, sum_ms in sums_ms.items() if sum_ms}
    return {**_head(service, record), "parts_ms": shown}


def _head(service: Service, record: RequestRecord) -> dict[str, Any]:
    reasons, usage, trace = record.finish_reasons, record.usage, record.trace
    return {
        "id": record.id,
        "object": "request.waterfall",
        "endpoint": record.endpoint,
        "model": record.model,
        "received_unix_s": round(record.received_unix_s, 6),
        "stream": record.stream,
        "status": record.status,
        "finish_reason": reasons[0] if reasons else None,
        "ttft_ms": _ms(record.ttft_s),
        "predicted_ttft_ms": _ms(record.predicted_ttft_s),
        "e2e_ms": _ms(record.lifetime.e2e_s),
        "tpot_ms": _ms(record.tpot_s),
        "usage": {
            "prompt_tokens": usage.prompt,
            "cached_tokens": usage.cached,
            "completion_tokens": usage.generated,
        },
        "active": {
            **_backend(service.engine.backend),
            "kv_cache_dtype": service.engine.config.cache.kv_cache_dtype,
            "cached_tokens": cached_by_source(trace.num_cached_tokens, trace.num_loaded_tokens),
            "saved_ms": _ms(trace.saved_s),
            "chunks": _num_chunks(trace),
            "preemptions": trace.preemptions,
        },
    }


def _backend(description: Mapping[str, Any]) -> dict[str, Any]:
    return {ours: description[theirs] for theirs, ours in _ACTIVE.items() if theirs in description}


def _num_chunks(trace: RequestTrace) -> int:
    """Chunks before the first token."""
    sampled = trace.first_sampled
    return sum(sampled is None or step.number <= sampled.number for step, _ in trace.chunks)


def _stretch_json(stretch: Stretch, began_s: float) -> dict[str, Any]:
    start_ms, stop_ms = _ms(stretch.began_s - began_s), _ms(stretch.ended_s - began_s)
    shown: dict[str, Any] = {
        "part": stretch.name,
        "start_ms": start_ms,
        "duration_ms": round(stop_ms - start_ms, 3),
    }
    if stretch.cause is not None:
        shown["cause"] = stretch.cause
    if stretch.chunk is not None:
        shown["chunk"] = stretch.chunk
        shown["start_token"] = stretch.start_token
        shown["tokens"] = stretch.tokens
    if stretch.tokens_of:
        shown |= _blame(stretch.tokens_of)
    if stretch.decodes:
        shown["decodes"] = stretch.decodes
    if stretch.num_steps and stretch.chunk is None:
        shown["steps"] = stretch.num_steps
    if stretch.forgotten:
        shown["forgotten"] = True
    return shown


def _blame(tokens_of: Mapping[str, int]) -> dict[str, Any]:
    """Name the requests with the most tokens, and count the others."""
    ranked = sorted(tokens_of.items(), key=lambda entry: -entry[1])
    named = [{"id": request_id, "tokens": tokens} for request_id, tokens in ranked[:_MOST_NAMED]]
    rest = ranked[_MOST_NAMED:]
    if not rest:
        return {"behind": named}
    others = {"requests": len(rest), "tokens": sum(tokens for _, tokens in rest)}
    return {"behind": named, "behind_others": others}


def _ms(seconds: float | None) -> Any:
    """Milliseconds to the microsecond, so that sums of what is shown come out exactly."""
    return None if seconds is None else round(seconds * 1e3, 3)
