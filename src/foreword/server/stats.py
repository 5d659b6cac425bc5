"""``GET /v1/stats``: how the server does, now and lately."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from foreword import __version__
from foreword.core.trace import cached_by_source
from foreword.metrics.rolling import SLOT_S, RollingStats, Slot, total
from foreword.metrics.sketch import Sketch
from foreword.sched.outputs import SchedulerStats
from foreword.server.errors import ApiError
from foreword.server.service import Service

_POINTS = 60  # of a curve, whatever the window
_WINDOWS_S = tuple(SLOT_S * _POINTS * factor for factor in (1, 3, 12))  # 5 min, 15 min, 1 h


def add_routes(app: FastAPI, service: Service, rolling: RollingStats) -> None:
    """Add the endpoint to ``app``."""

    @app.get("/v1/stats", tags=["operations"])
    async def stats(request: Request) -> JSONResponse:
        """Return the engine's state, and TTFT, TPOT and the parts of TTFT over ``window_s``."""
        window_s = _window(request.query_params.get("window_s", str(_WINDOWS_S[0])))
        slot_s = window_s // _POINTS
        slots = rolling.slots(window_s, slot_s)
        now_unix_s, now_s = time.time(), time.monotonic()
        answer = {
            "object": "stats",
            "model": service.model_name,
            "version": __version__,
            "started_unix_s": service.created,
            "now_unix_s": now_unix_s,
            "engine": _engine(service.engine.stats(), service.engine.config.cache.block_size),
            "window": {"duration_s": window_s, **_slot(total(slots))},
            "slots": [
                {
                    "begin_unix_s": round(now_unix_s - now_s + slot.begin_s, 1),
                    "duration_s": slot_s,
                    **_slot(slot),
                }
                for slot in slots
            ],
        }
        return JSONResponse(answer)


def _window(given: str) -> int:
    if given not in map(str, _WINDOWS_S):
        known = ", ".join(map(str, _WINDOWS_S))
        raise ApiError(400, f"window_s must be one of {known}, not {given!r}", param="window_s")
    return int(given)


def _engine(stats: SchedulerStats, block_size: int) -> dict[str, Any]:
    blocks, totals = stats.blocks, stats.totals
    return {
        "running": stats.num_running,
        "waiting": stats.num_waiting,
        "waiting_tokens": stats.num_waiting_tokens,
        "kv_blocks": {
            "total": blocks.total,
            "referenced": blocks.referenced,
            "cached": blocks.cached,
            "free": blocks.free,
            "block_size": block_size,
        },
        "steps": totals.steps,
        "preemptions": totals.preemptions,
        "waste_ratio": round(totals.waste_ratio, 4),
        "prompt_tokens": totals.prompt_tokens,
        "cached_tokens": totals.cached_prompt_tokens,
        "cached_by_source": cached_by_source(
            totals.cached_prompt_tokens, totals.loaded_prompt_tokens
        ),
        "generated_tokens": totals.generated_tokens,
    }


def _slot(slot: Slot) -> dict[str, Any]:
    with_ttft = slot.ttft_s.count
    return {
        "requests": dict(slot.statuses),
        "errors": {str(status): number for status, number in slot.errors.items()},
        "ttft_ms": _quantiles(slot.ttft_s, 1e3),
        "ttft_prediction_error": _quantiles(slot.ttft_error),
        "tpot_ms": _quantiles(slot.tpot_s, 1e3),
        "parts_ms": {
            part: round(1e3 * seconds / with_ttft, 3) for part, seconds in slot.parts_s.items()
        },
        "prompt_tokens": slot.prompt_tokens,
        "cached_tokens": slot.cached_tokens,
        "cached_by_source": cached_by_source(slot.cached_tokens, slot.loaded_tokens),
        "generated_tokens": slot.generated_tokens,
    }


def _quantiles(sketch: Sketch, unit: float = 1.0) -> dict[str, float] | None:
    if not sketch.count:
        return None
    p50, p90, p99 = (round(unit * value, 3) for value in sketch.quantiles((0.5, 0.9, 0.99)))
    return {"p50": p50, "p90": p90, "p99": p99, "max": round(unit * sketch.max, 3)}
