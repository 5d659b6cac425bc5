"""A real server on a real socket: the real engine over a backend whose tokens are a script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from http.client import HTTPConnection
from typing import Any

import openai
import pytest
import uvloop
from support.scripted import tiny_engine
from support.waiting import HANG_S, wait_for

from foreword.config.admission import AdmissionConfig
from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.engine.engine import Engine
from foreword.server.serve import Server

_ADMISSION = {field.name for field in fields(AdmissionConfig)}


@dataclass(frozen=True)
class Reply:
    """An HTTP response that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Running:
    """A server that runs in a thread, and ways to talk to it.

    Settings are `AdmissionConfig`'s and `ServerConfig`'s.
    """

    wait_for = staticmethod(wait_for)

    def __init__(self, engine: Engine, *, stuck_after_s: float = HANG_S, **settings: Any) -> None:
        limits = {name: settings.pop(name) for name in _ADMISSION & settings.keys()}
        admission = AdmissionConfig(**limits)
        self.engine = AsyncEngine(engine, admission, stuck_after_s=stuck_after_s)
        self.server = Server(self.engine, ServerConfig(**{"port": 0, **settings}))
        self._clients: list[openai.OpenAI] = []
        self.host, self.port = self.server.address
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_for(lambda: self.engine.accepting)

    def _run(self) -> None:
        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            await self.server.run()

        uvloop.run(run())

    @property
    def alive(self) -> bool:
        """Whether the server's thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Begin the end, as a signal would."""
        self.loop.call_soon_threadsafe(self.server.stop)

    def join(self) -> None:
        """Wait for the server to have ended."""
        for client in self._clients:
            client.close()
        self._thread.join(HANG_S)
        assert not self.alive, "the server did not end"

    def client(self, **options: Any) -> openai.OpenAI:
        """Return the real client, which does not retry."""
        options = {"api_key": "any", "max_retries": 0, "timeout": HANG_S, **options}
        client = openai.OpenAI(base_url=f"http://{self.host}:{self.port}/v1", **options)
        self._clients.append(client)
        return client

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request on a connection of its own; what is not bytes becomes JSON."""
        connection = HTTPConnection(self.host, self.port, timeout=HANG_S)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any) -> Reply:
        return self.send("POST", path, body)

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def connect(self) -> socket.socket:
        """Open a raw connection."""
        return socket.create_connection((self.host, self.port), timeout=HANG_S)

    @property
    def idle(self) -> bool:
        """Whether no sequence waits or runs, and every block is free or cached."""
        stats = self.engine.stats()
        return not (stats.num_running or stats.num_waiting or stats.blocks.referenced)


@pytest.fixture(scope="session")
def running() -> type[Running]:
    """Return the class, for tests that bring an engine of their own."""
    return Running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """Return a server that a module's tests share."""
    running = Running(tiny_engine())
    yield running
    running.stop()
    running.join()


@pytest.fixture
def launch() -> Iterator[Callable[..., Running]]:
    """Return a function that starts servers, which end with the test.

    Its options are `tiny_engine`'s, `AsyncEngine`'s, `AdmissionConfig`'s and `ServerConfig`'s.
    """
    started: list[Running] = []

    def start(**options: Any) -> Running:
        names = tiny_engine.__kwdefaults__ or {}
        engine = {name: options.pop(name) for name in list(options) if name in names}
        started.append(Running(tiny_engine(**engine), **options))
        return started[-1]

    yield start
    for running in started:
        if running.alive:
            running.stop()
            running.stop()  # at once
        running.join()
