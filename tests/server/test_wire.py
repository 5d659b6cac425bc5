"""When bytes reach the socket: read raw, with no HTTP library in between."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from support.waiting import HANG_S, StepGate

TEXT = "/v1/completions"


def request(**body: Any) -> bytes:
    data = json.dumps({"stream": True, **body}).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def read_until(connection: socket.socket, mark: bytes, data: bytes = b"") -> bytes:
    while mark not in data:
        part = connection.recv(65536)
        assert part, f"closed before {mark!r}"
        data += part
    return data


def test_each_token_is_written_before_the_next_is_sampled(launch):
    gate = StepGate()
    server = launch(on_step=gate)
    with server.connect() as connection:
        connection.sendall(request(prompt="say:abc"))
        for letter in "abc":
            connection.settimeout(0.05)
            try:
                early = connection.recv(65536)
            except TimeoutError:
                early = b""
            assert not early, "bytes without a token"
            connection.settimeout(HANG_S)
            gate.let(1)
            data = read_until(connection, f'"text":"{letter}"'.encode())
            read_until(connection, b"\n\n\r\n", data)
        gate.let(1)
        read_until(connection, b"[DONE]")


def test_a_stop_string_that_never_comes_delays_nothing(launch):
    gate = StepGate(1)
    server = launch(on_step=gate)
    with server.connect() as connection:
        connection.sendall(request(prompt="say:abc", stop=["z" * 100, "bx"]))
        read_until(connection, b'"text":"a"')
        gate.open()
        read_until(connection, b"[DONE]")


def test_a_slow_prefill_is_kept_alive_by_comments(launch, monkeypatch):
    from foreword.server import event_stream

    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    gate = StepGate()
    server = launch(on_step=gate)
    with server.connect() as connection:
        connection.sendall(request(prompt="say:abc"))
        waiting = read_until(connection, b": still working\n\n")
        assert waiting.startswith(b"HTTP/1.1 200")
        assert b"data:" not in waiting
        gate.open()
        read_until(connection, b"[DONE]")


def ttft(connection: socket.socket) -> float:
    began = time.monotonic()
    connection.sendall(request(prompt="say:x"))
    data = read_until(connection, b'"text":"x"')
    first_s = time.monotonic() - began
    read_until(connection, b"0\r\n\r\n", data)
    return first_s


def test_a_kept_connection_is_as_fast_as_a_new_one(server):
    with server.connect() as kept:
        ttft(kept)
        reused, fresh = [], []
        for _ in range(40):
            reused.append(ttft(kept))
            with server.connect() as new:
                fresh.append(ttft(new))
    # A delayed acknowledgement would add 40 ms to each; a busy machine does not to all.
    assert min(reused) < min(fresh) + 0.02


def test_pipelined_requests_are_answered_in_order(server):
    with server.connect() as connection:
        connection.sendall(request(prompt="say:one") + request(prompt="say:two"))
        data = read_until(connection, b"[DONE]\n\n")
        while data.count(b"[DONE]") < 2:
            data += connection.recv(65536)
    assert data.count(b"HTTP/1.1 200") == 2
    assert data.index(b'"text":"n"') < data.index(b'"text":"w"')


def test_a_request_that_comes_in_small_pieces(server):
    with server.connect() as connection:
        for byte in request(prompt="say:x"):
            connection.sendall(bytes([byte]))
        assert read_until(connection, b"[DONE]").startswith(b"HTTP/1.1 200")
