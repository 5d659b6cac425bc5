"""Starting, draining, ending, and telling a stuck engine from a busy one."""

from __future__ import annotations

import concurrent.futures
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from support.waiting import HANG_S, StepGate, wait_for

from foreword.kv.identity import BlockName
from foreword.server import serve
from foreword.tiers.memory import MemoryTier

TEXT = "/v1/completions"
CHILD = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from support.scripted import tiny_engine
from foreword.config.server import ServerConfig
from foreword.engine import async_engine
from foreword.server.serve import serve

def step(plan):
    time.sleep(0.01)
    if any(ord("!") in sequence.token_ids for sequence in plan.sequences):
        threading.Event().wait()  # for ever

async_engine._LAST_STEP_S = 0.3
engine = async_engine.AsyncEngine(tiny_engine(on_step=step), stuck_after_s=0.5)
serve(engine, ServerConfig(port=0, drain_timeout=float(sys.argv[2])))
"""


def in_background(call: Callable[[], Any], count: int = 1) -> list[concurrent.futures.Future[Any]]:
    pool = concurrent.futures.ThreadPoolExecutor(count)
    return [pool.submit(call) for _ in range(count)]


def test_draining_lets_running_requests_finish_and_takes_no_new_ones(launch):
    gate = StepGate()
    server = launch(on_step=gate)
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
        reply = stream.result(HANG_S)
        assert reply.status == 200
        assert reply.body.count(b'"text":') == len("to the end") + 1
        assert reply.body.endswith(b"data: [DONE]\n\n")
    server.join()


@pytest.mark.parametrize("stops", [1, 2])
def test_what_outlasts_the_drain_gets_a_last_event(launch, stops):
    gate = StepGate()
    server = launch(on_step=gate, drain_timeout=0.0 if stops == 1 else 3600.0)
    body = {"prompt": "x", "max_tokens": 4000}
    [stream] = in_background(lambda: server.post(TEXT, {**body, "stream": True}))
    [whole] = in_background(lambda: server.post(TEXT, body))
    server.wait_for(lambda: len(server.engine._streams) == 2)
    gate.let(6)
    server.wait_for(lambda: server.engine.steps.next_number == 7)
    for _ in range(stops):
        server.stop()
    reply = stream.result(HANG_S)
    assert reply.status == 200
    assert b'"code":"shutting_down"' in reply.body.rpartition(b"data: ")[2]
    assert whole.result(HANG_S).status == 503
    gate.open()
    server.join()


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

    def request(self, body: str, path: str = TEXT) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        self._connections.append(connection)
        connection.request("POST" if body else "GET", path, body)
        return connection

    def stream(self, max_tokens: int) -> Any:
        body = f'{{"prompt": "x", "stream": true, "max_tokens": {max_tokens}}}'
        return self.request(body).getresponse()

    def says_yes(self, path: str) -> bool:
        return self.request("", path).getresponse().status == 200

    @property
    def alive(self) -> bool:
        return self.says_yes("/livez")

    def end(self) -> int:
        code = self.process.wait(HANG_S)
        assert self.process.stderr is not None
        self.last_words = self.process.stderr.read()
        self.process.stderr.close()
        for connection in self._connections:
            connection.close()
        return code


def test_those_who_have_not_begun_hear_of_the_end(launch, monkeypatch):
    gate, tokenizing = StepGate(), StepGate()
    arrived = threading.Event()
    server = launch(on_step=gate, max_num_seqs=1, drain_timeout=0.1)
    encode = server.engine.tokenizer.encode

    def slow_encode(text: str, **options: Any) -> list[int]:
        if len(text) > 1000:
            arrived.set()
            tokenizing(None)
        return encode(text, **options)

    monkeypatch.setattr(server.engine.tokenizer, "encode", slow_encode)
    running = in_background(lambda: server.post(TEXT, {"prompt": "a", "stream": True}))
    server.wait_for(lambda: server.engine.stats().num_running == 1)
    queued = in_background(lambda: server.post(TEXT, {"prompt": "b", "stream": True}), 2)
    server.wait_for(lambda: server.engine.stats().num_waiting == 2)
    [encoding] = in_background(lambda: server.post(TEXT, {"prompt": "long " * 1000}))
    assert arrived.wait(HANG_S)
    server.stop()
    for request in (*running, *queued):  # nothing has been written: an answer, and no event
        reply = request.result(HANG_S)
        assert (reply.status, reply.error["code"]) == (503, "shutting_down")
    tokenizing.open()
    assert encoding.result(HANG_S).status == 503
    gate.open()
    server.join()


def test_a_request_that_waits_for_a_tier_hears_of_the_end(launch, monkeypatch):
    # However busy the machine is, a block that is there is waited for.
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)
    asked, loading = threading.Event(), threading.Event()

    class SlowTier(MemoryTier):
        def get(self, name: BlockName) -> bytes | None:
            asked.set()
            loading.wait(HANG_S)
            return super().get(name)

    tier = SlowTier(1 << 30)
    body = {"prompt": "a document " * 300, "max_tokens": 1}
    options = {"tiers": [tier]}
    first = launch(**options)
    assert first.post(TEXT, body).status == 200
    first.stop()
    first.join()
    assert tier.num_bytes > 0

    server = launch(**options, drain_timeout=0.1)
    [request] = in_background(lambda: server.post(TEXT, body))
    assert asked.wait(HANG_S)
    assert server.engine.stats().totals.steps == 0
    server.stop()
    assert request.result(HANG_S).status == 503
    loading.set()
    server.join()


def test_a_client_that_reads_nothing_holds_up_nobody(launch, monkeypatch):
    monkeypatch.setattr(serve, "_FAREWELL_S", 0.5)
    server = launch(drain_timeout=0.5)
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    lazy.connect((server.host, server.port))
    body = b'{"prompt": "x", "max_tokens": 3000, "n": 8, "stream": true}'  # some 4 MB to read
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    lazy.sendall(head % len(body) + body)
    server.wait_for(lambda: server.engine.stats().num_running == 8)
    assert server.post(TEXT, {"prompt": "say:others"}).json()["choices"][0]["text"] == "others"
    server.wait_for(lambda: server.idle)  # its blocks are free, whatever it reads
    assert server.engine._streams  # and not all of it is on its way
    assert lazy.recv(1) == b"H"
    server.stop()
    server.join()
    lazy.close()


def test_prompts_that_are_warmed_do_not_hold_the_exit(launch, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "number {n}"}}\n' for n in range(200)))
    gate = StepGate(2)
    server = launch(warm_prompts=str(prompts), on_step=gate)
    server.wait_for(lambda: server.engine.steps.next_number == 3)
    server.stop()
    server.wait_for(lambda: not server.engine.accepting)
    gate.open()
    server.join()
    assert server.engine.steps.next_number == 3


def test_a_signal_right_after_the_start_is_heard():
    child = Child(drain_timeout=HANG_S)
    child.process.send_signal(signal.SIGTERM)
    assert child.end() == 0


def test_sigterm_drains_and_exits_with_zero():
    child = Child(drain_timeout=HANG_S)
    responses = [child.stream(max_tokens=30) for _ in range(3)]
    child.process.send_signal(signal.SIGTERM)
    for response in responses:
        assert response.read().endswith(b"[DONE]\n\n")
    assert child.end() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(second):
    child = Child(drain_timeout=3600.0)
    response = child.stream(max_tokens=4000)
    child.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not child.says_yes("/readyz"))  # two signals at once may become one
    child.process.send_signal(second)
    assert b"shutting_down" in response.read()
    assert child.end() == 0


PROBES = ("/livez", "/health", "/readyz")


def test_a_full_queue_is_alive_and_a_stuck_step_is_not(launch, caplog):
    gate = StepGate()
    server = launch(on_step=gate, max_num_seqs=1, stuck_after_s=0.2)
    assert server.get("/livez").status == 200
    waiting = in_background(lambda: server.post(TEXT, {"prompt": "say:x"}), 4)
    server.wait_for(lambda: not server.engine.healthy)
    for path in PROBES:
        assert server.get(path).status == 503
    server.wait_for(lambda: bool(caplog.records))
    time.sleep(0.1)  # five more looks
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("no step for 0.2 s though there is work\n")
    assert "self._changed.wait_for" in told  # where it hangs
    gate.open()
    for request in waiting:
        assert request.result(HANG_S).status == 200
    for path in PROBES:
        server.wait_for(lambda path=path: server.get(path).status == 200)


def test_a_loop_that_begins_no_step_is_stuck_only_where_there_is_work(launch, monkeypatch):
    server = launch(stuck_after_s=0.2)
    time.sleep(0.3)
    assert server.engine.healthy  # idle for longer than that
    with monkeypatch.context() as patch:
        patch.setattr(server.engine._engine, "plan", lambda: time.sleep(0.001))
        [request] = in_background(lambda: server.post(TEXT, {"prompt": "say:x"}))
        server.wait_for(lambda: server.get("/livez").status == 503)
    assert request.result(HANG_S).status == 200
    server.wait_for(lambda: server.get("/livez").status == 200)


def test_a_step_that_never_ends_is_seen_and_does_not_hold_the_exit():
    child = Child(drain_timeout=0.2)
    assert child.alive
    began = time.monotonic()
    whole = child.request('{"prompt": "!"}')
    wait_for(lambda: not child.alive)
    assert time.monotonic() - began > 0.4  # not before its time
    child.process.send_signal(signal.SIGTERM)
    assert whole.getresponse().status == 503
    assert child.end() == 0
    assert "no step for 0.5 s though there is work" in child.last_words
    assert "leaving without it" in child.last_words


def test_when_the_step_loop_dies_everyone_hears_of_it(launch, caplog):
    gate = StepGate()

    def die(plan: object) -> None:
        gate(plan)
        raise RuntimeError("not a BackendError")

    server = launch(on_step=die)
    requests = in_background(lambda: server.post(TEXT, {"prompt": "x"}), 3)
    server.wait_for(lambda: len(server.engine._streams) == 3)
    gate.open()
    for request in requests:
        assert request.result(HANG_S).status == 500
    assert server.get("/livez").status == 503
    assert server.post(TEXT, {"prompt": "x"}).status == 503
    assert "the step loop died" in caplog.text
