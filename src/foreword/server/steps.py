"""``GET /v1/steps``: what the engine's latest steps held, and how long they took."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from foreword.core.trace import STEPS_KEPT, StepRecord
from foreword.sched.cost import LOAD_FEATURES
from foreword.server.chunks import compact
from foreword.server.queries import count_in
from foreword.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoint to ``app``."""

    @app.get("/v1/steps", tags=["measurement"])
    async def steps(request: Request) -> Response:
        """Return the latest steps that have ended, oldest first; ``last`` says how many.

        Their ``load`` is what the cost model predicts durations from.
        """
        last = count_in(request, "last", 1000, most=STEPS_KEPT)
        log = service.engine.steps

        def render() -> str:  # takes half a second for all that are kept
            numbers = range(max(log.oldest_number, log.next_number - last), log.next_number)
            data = [_step(record) for number in numbers if (record := log.get(number)) is not None]
            return compact({"object": "list", "data": [step for step in data if step is not None]})

        return Response(await asyncio.to_thread(render), media_type="application/json")


def _step(record: StepRecord) -> dict[str, Any] | None:
    if record.applied_s is None:
        return None
    return {
        "number": record.number,
        "planned_s": record.planned_s,
        "began_s": record.began_s,
        "ended_s": record.ended_s,
        "applied_s": record.applied_s,
        "predicted_s": record.predicted_s,
        "load": dict(zip(LOAD_FEATURES, record.load, strict=True)),
    }
