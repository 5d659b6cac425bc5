"""A client that leaves frees its sequence and its blocks, whatever its request was doing."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from typing import Any

import pytest
from support.waiting import StepGate, least_burnt_s


def raw_post(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def ask(server: Any, **body: Any) -> socket.socket:
    """Send a completion request that goes on for long; leave the response unread."""
    connection = server.connect()
    connection.sendall(raw_post("/v1/completions", {"prompt": "x", "max_tokens": 3000, **body}))
    return connection


def running(server: Any) -> int:
    num_running: int = server.engine.stats().num_running
    return num_running


def free_after_the_step(server: Any, gate: StepGate) -> None:
    """A client has left while the gate held a step: no other step may follow."""
    server.wait_for(lambda: not running(server))
    steps = server.engine.steps.next_number
    gate.open()
    server.wait_for(lambda: server.idle)
    assert server.engine.steps.next_number == steps


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", [{}, {"n": 3}, {"prompt": ["x", "y"]}])
def test_while_it_decodes(launch, stream, shape):
    gate = StepGate(6)
    server = launch(on_step=gate)
    connection = ask(server, stream=stream, **shape)
    server.wait_for(lambda: server.engine.steps.next_number == 7)
    assert running(server)
    connection.close()
    free_after_the_step(server, gate)


def test_by_resetting_the_connection(launch):
    gate = StepGate(6)
    server = launch(on_step=gate)
    connection = ask(server, stream=True)
    assert connection.recv(10)
    server.wait_for(lambda: server.engine.steps.next_number == 7)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    free_after_the_step(server, gate)


@pytest.mark.parametrize("stream", [False, True])
def test_during_prefill(launch, stream):
    gate = StepGate(6)
    server = launch(on_step=gate, max_num_batched_tokens=16)
    connection = ask(server, prompt="x" * 4000, max_tokens=10, stream=stream)
    server.wait_for(lambda: server.engine.steps.next_number == 7)
    connection.close()
    free_after_the_step(server, gate)
    assert server.engine.stats().totals.computed_tokens <= 7 * 16


@pytest.mark.parametrize("stream", [False, True])
def test_while_queued_and_is_never_computed(launch, stream):
    gate = StepGate(1)
    server = launch(on_step=gate, max_num_seqs=1)
    first = ask(server, prompt="the first")
    server.wait_for(lambda: running(server) == 1)
    queued = [ask(server, prompt="queued", stream=stream) for _ in range(10)]
    server.wait_for(lambda: server.engine.stats().num_waiting == 10)
    for connection in queued:
        connection.close()
    server.wait_for(lambda: server.engine.stats().num_waiting == 0)
    first.close()
    gate.open()
    server.wait_for(lambda: server.idle)
    assert server.engine.stats().totals.prompt_tokens == len("the first")


def test_and_then_the_processor_is_idle(launch):
    server = launch()
    connection = ask(server, stream=True, ignore_eos=True)
    assert connection.recv(10)
    connection.close()
    server.wait_for(lambda: server.idle)
    assert least_burnt_s(0.05) < 0.005


def test_before_the_body_is_complete(server):
    with server.connect() as connection:
        connection.sendall(raw_post("/v1/completions", {"prompt": "x"})[:-3])
    assert server.post("/v1/completions", {"prompt": "say:ok"}).status == 200


def test_many_at_random_times_again_and_again(launch, caplog):
    server = launch(on_step=lambda plan: time.sleep(0.004), max_num_seqs=32)
    dice = random.Random(7)
    for _ in range(3):
        connections = [ask(server, stream=dice.random() < 0.7) for _ in range(100)]
        time.sleep(dice.random() * 0.05)
        for connection in connections:
            connection.close()
    server.wait_for(lambda: server.idle)
    assert server.post("/v1/completions", {"prompt": "say:ok"}).status == 200
    assert server.idle
    assert not caplog.records


def test_the_openai_client_may_close_its_stream(launch):
    gate = StepGate(6)
    server = launch(on_step=gate)
    client = server.client()
    stream = client.completions.create(model="tiny", prompt="x", max_tokens=3000, stream=True)
    next(iter(stream))
    server.wait_for(lambda: server.engine.steps.next_number == 7)
    stream.close()
    free_after_the_step(server, gate)


def test_a_thousand_streams_at_once_all_end_well(launch):
    server = launch(max_num_seqs=1000, num_blocks=8192)
    request = raw_post("/v1/completions", {"prompt": "say:all is well", "stream": True})

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(request)
        answer = await reader.readuntil(b"[DONE]\n\n")
        writer.close()
        return answer

    async def everyone() -> list[bytes]:
        return await asyncio.gather(*(one() for _ in range(1000)))

    answers = asyncio.run(everyone())
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert all(answer.count(b'"text":') == len("all is well") + 1 for answer in answers)
    server.wait_for(lambda: server.idle)


def test_concurrent_streams_do_not_change_each_other(launch):
    server = launch(max_num_seqs=8)
    client = server.client()
    words = [f"answer number {number}" for number in range(16)]
    streams = [
        client.completions.create(model="tiny", prompt=f"say:{word}", max_tokens=64, stream=True)
        for word in words
    ]
    texts = ["".join(chunk.choices[0].text for chunk in stream) for stream in streams]
    assert texts == words
