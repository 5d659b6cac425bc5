"""Runs the application on a socket, and ends it politely."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.errors import ConfigError
from foreword.server.app import create_app

_BACKLOG = 4096
_TICK_S = 0.01
_FAREWELL_S = 5.0  # for the last bytes to leave, once the engine has stopped
_QUICK_FAREWELL_S = 0.5  # the same after a second signal


class Server:
    """One listening server. The socket is bound at once, so `address` is known before `run`.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(self, engine: AsyncEngine, config: ServerConfig) -> None:
        self._engine = engine
        self._drain_timeout = config.drain_timeout
        self._socket = _listen(config.host, config.port)
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                create_app(engine, config),
                http=_Protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=config.keep_alive_timeout,
            )
        )
        self._draining: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients can reach."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    async def run(self) -> None:
        """Serve until `stop`. Returns when every response has ended."""
        await self._uvicorn.serve(sockets=[self._socket])

    def stop(self) -> None:
        """End: refuse new requests, let running ones finish for a while, then close.

        A second call ends the running ones at once, and hardly waits for clients to read the rest.
        Call on the server's event loop.
        """
        at_once = self._draining is not None
        if self._draining is not None:
            self._draining.cancel()
        self._draining = asyncio.ensure_future(self._drain(at_once))

    async def _drain(self, at_once: bool) -> None:
        while not self._uvicorn.started:  # what has not begun cannot be ended
            await asyncio.sleep(_TICK_S)
        # The socket stays open meanwhile: a 503 tells a client more than a refused connection.
        await self._engine.shutdown(0.0 if at_once else self._drain_timeout)
        self._uvicorn.should_exit = True
        await asyncio.sleep(_QUICK_FAREWELL_S if at_once else _FAREWELL_S)
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()  # its client does not read what it was sent


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("port", f"cannot listen on {host}, port {port}: {reason}") from error


class _Protocol(HttpToolsProtocol):
    """Notes when a request's head was read; its task begins a little later."""

    def on_headers_complete(self) -> None:
        self.scope["received_s"] = time.monotonic()  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handlers, which would re-raise the signal at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(engine: AsyncEngine, config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C. Blocks; a second signal ends running requests at once.

    Raises:
        ConfigError: the address cannot be bound.
    """
    import uvloop

    server = Server(engine, config)
    # What is here by now stays: collections, which stop everything, need not look at it.
    gc.collect()
    gc.freeze()
    uvloop.run(_serve(server, config))
    gc.unfreeze()  # or the compiled core says at exit that it has leaked


async def _serve(server: Server, config: ServerConfig) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    host, port = server.address
    host = f"[{host}]" if ":" in host else host
    print(f"listening on http://{host}:{port}", file=sys.stderr, flush=True)
    if config.metrics:
        print(f"dashboard at http://{host}:{port}/dashboard", file=sys.stderr, flush=True)
    await server.run()
