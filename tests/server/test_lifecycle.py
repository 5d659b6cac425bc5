"""Starting, draining, ending, and telling a stuck engine from a busy one."""

from __future__ import annotations

import concurrent.futures
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from foreword.engine import async_engine

TEXT = "/v1/completions"
CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from support.scripted import tiny_engine
from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.server.serve import serve
engine = tiny_engine(on_step=lambda plan: time.sleep(0.01))
serve(AsyncEngine(engine), ServerConfig(port=0, drain_timeout=float(sys.argv[2])))
"""


class Gate:
    """Lets the engine's steps pass only while it is open."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.close, self.open = self._open.clear, self._open.set

    def __call__(self, plan: object) -> None:
        self._open.wait(20)


def in_background(call: Callable[[], Any], count: int = 1) -> list[concurrent.futures.Future[Any]]:
    pool = concurrent.futures.ThreadPoolExecutor(count)
    return [pool.submit(call) for _ in range(count)]


def test_draining_lets_running_requests_finish_and_takes_no_new_ones(launch):
    gate = Gate()
    server = launch(on_step=gate)
    gate.close()
    body = {"prompt": "say:to the end", "max_tokens": 64, "stream": True}
    streams = in_background(lambda: server.post(TEXT, body), 10)
    server.wait_for(lambda: len(server.engine._streams) == 10)
    assert server.get("/readyz").status == 200

    server.stop()
    server.wait_for(lambda: not server.engine.accepting)
    assert server.get("/readyz").status == 503
    assert server.get("/livez").status == 200
    refused = server.post(TEXT, body)
    assert (refused.status, refused.error["code"]) == (503, "shutting_down")

    gate.open()
    for stream in streams:
        reply = stream.result(10)
        assert reply.status == 200
        assert reply.body.count(b'"text":') == len("to the end") + 1
        assert reply.body.endswith(b"data: [DONE]\n\n")
    server.join()


@pytest.mark.parametrize("stops", [1, 2])
def test_what_outlasts_the_drain_gets_a_last_event(launch, stops):
    server = launch(
        on_step=lambda plan: time.sleep(0.005), drain_timeout=0.0 if stops == 1 else 60.0
    )
    body = {"prompt": "x", "max_tokens": 4000}
    [stream] = in_background(lambda: server.post(TEXT, {**body, "stream": True}))
    [whole] = in_background(lambda: server.post(TEXT, body))
    server.wait_for(lambda: server.engine.stats().num_running == 2)
    server.wait_for(lambda: server.engine.stats().totals.steps > 5)
    began = time.monotonic()
    for _ in range(stops):
        server.stop()
    reply = stream.result(5)
    assert reply.status == 200
    assert b'"code":"shutting_down"' in reply.body.rpartition(b"data: ")[2]
    assert whole.result(5).status == 503
    server.join()
    assert time.monotonic() - began < 3.0


class Child:
    """`serve` in a process of its own."""

    def __init__(self, drain_timeout: float) -> None:
        arguments = [str(Path(__file__).parents[1]), str(drain_timeout)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, *arguments], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        self.port = int(line.rpartition(":")[2])
        self._connections: list[HTTPConnection] = []

    def stream(self, max_tokens: int) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._connections.append(connection)
        body = f'{{"prompt": "x", "stream": true, "max_tokens": {max_tokens}}}'
        connection.request("POST", TEXT, body)
        return connection.getresponse()

    def end(self) -> int:
        code = self.process.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        for connection in self._connections:
            connection.close()
        return code


def test_sigterm_drains_and_exits_with_zero():
    child = Child(drain_timeout=20.0)
    responses = [child.stream(max_tokens=30) for _ in range(3)]
    child.process.send_signal(signal.SIGTERM)
    for response in responses:
        assert response.read().endswith(b"[DONE]\n\n")
    assert child.end() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(second):
    child = Child(drain_timeout=60.0)
    response = child.stream(max_tokens=4000)
    began = time.monotonic()
    child.process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    child.process.send_signal(second)
    assert b"shutting_down" in response.read()
    assert child.end() == 0
    assert time.monotonic() - began < 3.0


def test_a_full_queue_is_alive_and_a_stuck_step_is_not(launch, monkeypatch):
    monkeypatch.setattr(async_engine, "_STUCK_AFTER_S", 0.2)
    gate = Gate()
    server = launch(on_step=gate, max_num_seqs=1)
    assert server.get("/livez").status == 200
    gate.close()
    waiting = in_background(lambda: server.post(TEXT, {"prompt": "say:x"}), 4)
    server.wait_for(lambda: not server.engine.healthy)
    for path in ("/livez", "/health", "/readyz"):
        assert server.get(path).status == 503
    gate.open()
    for request in waiting:
        assert request.result(5).status == 200
    for path in ("/livez", "/health", "/readyz"):
        assert server.get(path).status == 200


def test_when_the_step_loop_dies_everyone_hears_of_it(launch, caplog):
    gate = Gate()

    def die(plan: object) -> None:
        gate(plan)
        raise RuntimeError("not a BackendError")

    server = launch(on_step=die)
    gate.close()
    requests = in_background(lambda: server.post(TEXT, {"prompt": "x"}), 3)
    server.wait_for(lambda: len(server.engine._streams) == 3)
    gate.open()
    for request in requests:
        assert request.result(5).status == 500
    assert server.get("/livez").status == 503
    assert server.post(TEXT, {"prompt": "x"}).status == 503
    assert "the step loop died" in caplog.text
