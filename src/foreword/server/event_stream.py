"""Server-sent events, written to the socket the moment they exist."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foreword.errors import ForewordError
from foreword.server.asgi import ClientLeftError, while_connected
from foreword.server.errors import to_api_error

logger = logging.getLogger(__name__)

Write = Callable[[bytes], Awaitable[None]]

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_S = 10.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the stream back
]


def event(payload: Any) -> bytes:
    """Return an event that carries a JSON value.

    JSON is written in ASCII: some clients take U+2028 and the like for the end of a line.
    """
    return b"data: %s\n\n" % json.dumps(payload, separators=(",", ":")).encode()


class EventStream(Response):
    """A response that ``produce`` writes, event by event.

    The head goes out with the first event. So an error that comes before it is an ordinary error
    response; a later one becomes an event of its own and ends the stream. Where nothing is written
    for `KEEP_ALIVE_S` seconds, a comment keeps proxies from giving up.

    Args:
        produce: writes events with the function that it is given.
        headers: asked for more headers when the head goes out.
    """

    def __init__(
        self,
        produce: Callable[[Write], Awaitable[None]],
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._produce = produce
        self._more_headers = headers
        self._started = False
        self._idle = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run to the end, or until the client leaves."""
        with contextlib.suppress(ClientLeftError):
            await while_connected(receive, self._run(send))

    async def _run(self, send: Send) -> None:
        async def write(data: bytes) -> None:
            self._idle = False
            if not self._started:
                self._started = True
                more = [
                    (name.encode(), value.encode()) for name, value in self._more_headers().items()
                ]
                head = {"status": 200, "headers": [*_HEADERS, *more]}
                await send({"type": "http.response.start", **head})
            await send({"type": "http.response.body", "body": data, "more_body": True})

        keeper: asyncio.TimerHandle | asyncio.Future[None]

        def keep_alive() -> None:
            nonlocal keeper
            keeper = asyncio.ensure_future(self._keep_alive(write))

        # A timer first: most streams have begun before they would need a task for this.
        keeper = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, keep_alive)
        try:
            await self._produce(write)
        except Exception as error:
            if not self._started:
                raise
            if not isinstance(error, ForewordError):
                logger.exception("a stream failed")
            await write(event(to_api_error(error).body()))
        finally:
            keeper.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, write: Write) -> None:
        while True:
            if self._idle:
                await write(b": still working\n\n")
            self._idle = True
            await asyncio.sleep(KEEP_ALIVE_S)
