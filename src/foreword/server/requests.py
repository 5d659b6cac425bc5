"""What the server remembers of its latest requests."""

from __future__ import annotations

import asyncio
import time

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from foreword.metrics.perfetto import perfetto_trace
from foreword.server.chunks import compact
from foreword.server.errors import ApiError
from foreword.server.queries import count_in
from foreword.server.service import Service
from foreword.server.timing import summary_json, waterfall_json


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints to ``app``."""

    @app.get("/v1/requests", tags=["measurement"])
    async def requests(request: Request) -> JSONResponse:
        """List the latest requests, youngest first, with the sums of their parts.

        Takes ``limit`` (1 … 1000) and ``before``, the id of a request to go on from.
        """
        limit = count_in(request, "limit", 100, most=1000)
        before = request.query_params.get("before")
        try:
            records = service.history.latest(limit + 1, before)
        except KeyError:
            raise _unknown(service, before or "") from None
        data = [summary_json(service, record) for record in records[:limit]]
        return JSONResponse({"object": "list", "data": data, "has_more": len(records) > limit})

    @app.get("/v1/requests/trace", tags=["measurement"])
    async def trace(request: Request) -> Response:
        """Return the requests and the engine's steps as a trace for ui.perfetto.dev.

        Takes ``last``, how many requests.
        """
        records = service.history.latest(count_in(request, "last", 1000, most=1_000_000))

        def render() -> str:  # takes seconds for 10,000 requests
            return compact(perfetto_trace(records, service.engine.steps, time.monotonic()))

        return Response(await asyncio.to_thread(render), media_type="application/json")

    @app.get("/v1/requests/{request_id:path}/waterfall", tags=["measurement"])
    async def waterfall(request_id: str) -> JSONResponse:
        """Return where one request's time went, part by part, with causes."""
        record = service.history.get(request_id)
        if record is None:
            raise _unknown(service, request_id)
        return JSONResponse(waterfall_json(service, record))


def _unknown(service: Service, request_id: str) -> ApiError:
    return ApiError(
        404,
        f"no request {request_id[:100]!r} is known here: it was never served, was refused, or is "
        f"older than the latest {service.config.request_history}",
        code="request_not_found",
    )
