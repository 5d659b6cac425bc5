"""One request and its response on a raw socket: which bytes came when, not what they mean."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import cast

import httptools

from foreword.bench.load.record import ErrorKind, Failure


class Exchange(asyncio.Protocol):
    """Sends one request as soon as it is connected, and keeps the response with its arrival times.

    The clock is read before anything else is done with what came, and only HTTP's framing is
    looked at here: what streams at the same time waits for each other's work, and that wait would
    be taken for the server's.

    Args:
        payload: the whole request.

    Attributes:
        over: resolves once, when nothing more will come, to what went wrong, or None.
        body: the pieces of the body and when each arrived.

    All times are ``time.monotonic()``.
    """

    def __init__(self, payload: bytes) -> None:
        self.over: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self.sent_s: float | None = None
        self.first_byte_s: float | None = None
        self.ended_s = 0.0
        self.status: int | None = None
        self.content_type = ""
        self.retry_after_s: float | None = None
        self.body: list[tuple[float, bytes]] = []
        self._unsent = payload
        self._now_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)

    def finish(self, failure: Failure | None) -> None:
        """Close the connection; what comes after the first call changes nothing."""
        if self.over.done():
            return
        self.ended_s = time.monotonic()
        self.over.set_result(failure)
        if self._transport is not None:
            self._transport.abort()

    async def run(self, address: tuple[str, int], tls_host: str | None) -> None:
        """Connect and send; failing to becomes the exchange's failure.

        Without TLS the bytes are handed to the kernel here, since a transport of uvloop keeps what
        is written to it until the loop has gone round.

        Args:
            tls_host: the name that the certificate must have; None: no TLS.
        """
        loop = asyncio.get_running_loop()
        try:
            with contextlib.ExitStack() as undo:
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                sock = undo.enter_context(socket.socket(family))
                sock.setblocking(False)
                await loop.sock_connect(sock, address)
                if tls_host is None:
                    self.sent_s = time.monotonic()
                    self._unsent = self._unsent[sock.send(self._unsent) :]
                await loop.create_connection(
                    lambda: self,
                    sock=sock,
                    ssl=None if tls_host is None else True,
                    server_hostname=tls_host,
                )
                undo.pop_all()  # the transport has it now
        except ConnectionRefusedError as error:
            self.finish(Failure(ErrorKind.REFUSED, str(error)))
        except OSError as error:
            kind = ErrorKind.UNREACHABLE if self.sent_s is None else ErrorKind.RESET
            self.finish(Failure(kind, str(error)))

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what has not been sent."""
        self._transport = cast(asyncio.Transport, transport)
        if self.over.done():  # given up while it was connecting
            self._transport.abort()
        elif self._unsent:
            self.sent_s = self.sent_s or time.monotonic()
            self._transport.write(self._unsent)

    def data_received(self, data: bytes) -> None:
        """Keep what came, with the time."""
        self._now_s = time.monotonic()
        if self.over.done():
            return
        if self.first_byte_s is None:
            self.first_byte_s = self._now_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.finish(Failure(ErrorKind.BAD_BODY, f"not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Take the end of the connection for the end of the response, if one has begun."""
        if error is not None:
            self.finish(Failure(ErrorKind.RESET, str(error) or type(error).__name__))
        elif self.status is None:
            self.finish(Failure(ErrorKind.RESET, "closed without an answer"))
        else:
            self.finish(None)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the type of the content, and when to come again."""
        if name.lower() == b"content-type":
            self.content_type = value.decode("latin-1").strip().lower()
        elif name.lower() == b"retry-after" and value.strip().isdigit():  # not a date
            self.retry_after_s = float(value)

    def on_headers_complete(self) -> None:
        """Keep the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self.body.append((self._now_s, piece))

    def on_message_complete(self) -> None:
        """End the exchange."""
        self.finish(None)
