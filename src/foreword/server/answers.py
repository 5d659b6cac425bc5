"""From a request in the engine to its response, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foreword.metrics.record import RequestRecord
from foreword.server.asgi import while_connected
from foreword.server.chunks import Chunks, Dialect, compact, usage_json
from foreword.server.event_stream import DONE, EventStream, Write
from foreword.server.generation import Generation
from foreword.server.service import Service
from foreword.server.timing import timing_now


async def respond(
    service: Service,
    request: Request,
    generation: Generation,
    dialect: Dialect,
    *,
    include_usage: bool,
    include_timing: bool,
) -> Response:
    """Run ``generation`` and answer in ``dialect``.

    Args:
        include_usage: whether a stream ends with the token counts; a whole answer always has them.
        include_timing: whether to say where the time went.
    """
    if generation.record.stream:
        envelope = service.envelope(generation.record.id, dialect.chunk_object)
        chunks = Chunks(dialect, envelope, generation.params.n, include_usage=include_usage)

        def closing() -> dict[str, Any]:
            usage = {"usage": usage_json(generation.record.usage)} if include_usage else {}
            timing = {"timing": timing_now(service, generation.record)} if include_timing else {}
            return {**usage, **timing}

        return _streamed(generation, chunks, closing)
    try:
        outputs = await while_connected(request.receive, generation.collect())
    except BaseException:
        generation.over()
        raise
    answer = {
        **service.envelope(generation.record.id, dialect.object),
        **dialect.whole(outputs),
        "usage": usage_json(generation.record.usage),
    }
    if include_timing:
        answer["timing"] = timing_now(service, generation.record)
    return _Whole(generation, answer)


class _Whole(Response):
    media_type = "application/json"

    def __init__(self, generation: Generation, answer: dict[str, Any]) -> None:
        super().__init__(compact(answer), headers=_headers(generation.record))
        self._generation = generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
            self._generation.written()
        finally:
            self._generation.over()


def _streamed(
    generation: Generation, chunks: Chunks, closing: Callable[[], dict[str, Any]]
) -> EventStream:
    async def produce(write: Write) -> None:
        try:
            async with aclosing(generation.run()) as deltas:
                async for prompt, delta in deltas:
                    await write(chunks.delta(prompt, delta))
                    if any(part.text for part in delta.completions):
                        generation.written()
            members = closing()
            await write(chunks.closing(members) + DONE if members else DONE)
        finally:
            generation.over()

    return EventStream(produce, lambda: _headers(generation.record))


def _headers(record: RequestRecord) -> dict[str, str]:
    """What the head of an answer says about it."""
    predicted_s = record.predicted_ttft_s
    return {} if predicted_s is None else {"x-predicted-ttft-ms": f"{predicted_s * 1e3:.1f}"}
