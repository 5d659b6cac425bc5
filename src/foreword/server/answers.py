"""From a request in the engine to its response, streamed or whole."""

from __future__ import annotations

from contextlib import aclosing

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from foreword.server.asgi import while_connected
from foreword.server.chunks import Chunks, Dialect, compact
from foreword.server.event_stream import DONE, EventStream, Write
from foreword.server.generation import Generation
from foreword.server.service import Service


async def respond(
    service: Service,
    request: Request,
    generation: Generation,
    dialect: Dialect,
    *,
    include_usage: bool,
) -> Response:
    """Run ``generation`` and answer in ``dialect``."""
    if generation.stream:
        envelope = service.envelope(generation.request_id, dialect.chunk_object)
        chunks = Chunks(dialect, envelope, generation.params.n, include_usage=include_usage)
        return _streamed(generation, chunks, include_usage=include_usage)
    outputs = await while_connected(request.receive, generation.collect())
    answer = {
        **service.envelope(generation.request_id, dialect.object),
        **dialect.whole(outputs),
        "usage": generation.usage.to_json(),
    }

    async def sent() -> None:
        generation.written()
        generation.record()

    return Response(compact(answer), media_type="application/json", background=BackgroundTask(sent))


def _streamed(generation: Generation, chunks: Chunks, *, include_usage: bool) -> EventStream:
    async def produce(write: Write) -> None:
        try:
            async with aclosing(generation.run()) as deltas:
                async for prompt, delta in deltas:
                    await write(chunks.delta(prompt, delta))
                    if any(part.text for part in delta.completions):
                        generation.written()
            await write(chunks.usage(generation.usage) + DONE if include_usage else DONE)
        finally:
            generation.record()

    return EventStream(produce)
