"""The ASGI edge: arrival times, API keys, bodies, and clients that leave."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foreword.metrics.lifetime import Lifetime
from foreword.server.errors import ApiError

_Result = TypeVar("_Result")

# Probes carry no key. The dashboard asks for one, and its data are not here.
OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/dashboard"})
_OPEN_FOLDER = "/dashboard/"
_BODY_RETRY_S = 1.0  # bodies go when their requests end: nobody knows when


class ClientLeftError(Exception):
    """The connection closed before the response was complete."""


class HeldBodies:
    """Counts the bytes of the bodies of all requests that are being served.

    Args:
        limit: how many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0

    @contextmanager
    def one(self) -> Iterator[Callable[[int], None]]:
        """Give what counts more bytes of one request's body; at the end they count no more.

        It raises a 429 where they would be too many.
        """
        held = 0

        def hold(count: int) -> None:
            nonlocal held
            if self._total + count > self._limit:
                raise ApiError(
                    429,
                    f"the bodies of the requests that are being served have {self._total} bytes, "
                    f"and may have {self._limit}",
                    code="overloaded",
                    retry_after_s=_BODY_RETRY_S,
                )
            held += count
            self._total += count

        try:
            yield hold
        finally:
            self._total -= held


class Entry:
    """Outermost middleware: begins a request's `Lifetime`, and checks its API key.

    Args:
        bodies: counts what is held of the requests' bodies.
        on_error: told the status of each answer that is given here.
    """

    def __init__(
        self,
        app: ASGIApp,
        api_keys: Sequence[str],
        bodies: HeldBodies,
        on_error: Callable[[int], None],
    ) -> None:
        self._app = app
        self._bodies = bodies
        self._on_error = on_error
        self._digests = [_digest(key.encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http":
            scope["lifetime"] = Lifetime(scope.get("received_s") or time.monotonic())
            scope["api_key"] = self._given(scope)
            known = not self._digests or self._is_known(scope["api_key"])
            if not (known or _is_open(scope["path"])):
                self._on_error(401)
                await _refuse(send)
                return
        with self._bodies.one() as scope["hold_body"]:
            await self._app(scope, receive, send)

    def _given(self, scope: Scope) -> bytes | None:
        """The digest of the key that came with the request; None where none did."""
        given = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, token = given.partition(b" ")
        return _digest(token.strip()) if scheme.lower() == b"bearer" else None

    def _is_known(self, digest: bytes | None) -> bool:
        # Digests have one length, and all are compared: the time tells nothing about a key.
        matches = [hmac.compare_digest(digest or b"", known) for known in self._digests]
        return any(matches)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(_OPEN_FOLDER)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


async def _refuse(send: Send) -> None:
    error = ApiError(401, "missing or incorrect API key", code="invalid_api_key")
    body = json.dumps(error.body()).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def lifetime_of(request: Request) -> Lifetime:
    """Return the instants of a request, to be completed."""
    life: Lifetime = request.scope["lifetime"]
    return life


async def read_body(request: Request, limit: int) -> bytes:
    """Read a request's body.

    Raises:
        ApiError: 413, as soon as it is clear that the body has more than ``limit`` bytes; 429
            where too much is held of others.
        ClientLeftError: the client left half-way.
    """
    declared = request.headers.get("content-length", "0")
    size = int(declared) if declared.isdecimal() else 0
    parts: list[bytes] = []
    received = 0
    more = size <= limit
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        parts.append(message.get("body", b""))
        received += len(parts[-1])
        request.scope["hold_body"](len(parts[-1]))
        more = message.get("more_body", False) and received <= limit
    if max(size, received) > limit:
        raise ApiError(413, f"the body may have {limit} bytes", code="body_too_large")
    lifetime_of(request).read_s = time.monotonic()
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``work``, and cancel it when the client leaves. The body must have been read.

    ``work`` runs in the caller's task: another one would take two more turns of the event loop.

    Raises:
        ClientLeftError: the client left; ``work`` has ended by then.
    """
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        message: Message = {"type": "http.request"}
        while message["type"] != "http.disconnect":
            message = await receive()
        has_left = True
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_left:
            raise ClientLeftError from None
        raise
    finally:
        watcher.cancel()
