"""Times a server's own part of the TTFT: ``python tools/time_server.py PORT [PORT...]``.

Short prompts that nobody has sent before, one after the other over a kept connection to each of
some servers on this machine (``foreword serve --port``), in turns. What is timed is the client's
TTFT less the forward pass; the servers say where the rest went. The client does nothing but wait
for bytes: all else comes before and after.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import socket
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from foreword.bench.prompts import corpus_text
from foreword.bench.stats import percentile

WORDS, TOKENS = 12, 8  # of a prompt and of an answer
WARM_UP = 10
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
FORWARD = "prefill"  # the part that is the forward pass


class Client:
    """One kept connection."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ttfts_ms: dict[str, float] = {}

    def ask(self, request: bytes) -> None:
        """Send a request, stop the watch at its first content, read the rest."""
        received, first_s = b"", None
        began_s = time.monotonic()
        self._socket.sendall(request)
        while not received.endswith(b"0\r\n\r\n"):
            received += self._socket.recv(1 << 16)
            if first_s is None and has_content(received):
                first_s = time.monotonic()
        assert first_s is not None, received
        head = received.index(b'{"id":"') + len(b'{"id":"')
        request_id = received[head : received.index(b'"', head)].decode()
        self.ttfts_ms[request_id] = (first_s - began_s) * 1e3

    def parts_ms(self) -> dict[str, list[float]]:
        """What came of the requests: ``ttft``, ``overhead`` and each part, a value for each."""
        columns: dict[str, list[float]] = {}
        for request_id, ttft_ms in self.ttfts_ms.items():
            parts = self._get(f"/v1/requests/{request_id}/waterfall")["parts"]
            sums = {"ttft": ttft_ms, "overhead": ttft_ms, "client": ttft_ms}
            for part in parts:
                name, part_ms = part["part"], part["duration_ms"]
                sums[name] = sums.get(name, 0.0) + part_ms
                sums["client"] -= part_ms
            sums["overhead"] -= sums[FORWARD]
            for name, sum_ms in sums.items():
                columns.setdefault(name, []).append(sum_ms)
        return columns

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._base + path) as reply:
            return json.load(reply)


def has_content(received: bytes) -> bool:
    """Whether text has come; a chat begins with a message that is empty."""
    return received.count(b'"text":"') + received.count(b'"content":"') > received.count(
        b'"content":""'
    )


def make_request(path: str, rng: random.Random, words: Sequence[str]) -> bytes:
    """Some words that make no sense: no cache has them."""
    text = " ".join(rng.choices(words, k=WORDS))
    asked = {"prompt": text} if path == TEXT else {"messages": [{"role": "user", "content": text}]}
    options = {"stream": True, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
    body = json.dumps({**asked, **options}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    """Ask in turns, then print a line for each part and server: median and p90."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--chat", action="store_true", help="conversations in place of texts")
    parser.add_argument("--requests", type=int, default=200, help="to each server")
    parser.add_argument("--gap", type=float, default=0.0, help="seconds before each request")
    arguments = parser.parse_args()
    rng = random.Random(time.time_ns())
    words = [word for word in corpus_text().split() if word.isalpha() and len(word) < 7]
    path = CHAT if arguments.chat else TEXT
    clients = [Client(port) for port in arguments.ports]
    gc.freeze()
    gc.disable()
    for number in range(WARM_UP + arguments.requests):
        for client in clients if number % 2 else clients[::-1]:
            request = make_request(path, rng, words)
            time.sleep(arguments.gap if number >= WARM_UP else 0.0)
            client.ask(request)
            if number < WARM_UP:
                client.ttfts_ms.clear()
    for port, client in zip(arguments.ports, clients, strict=True):
        for name, column_ms in client.parts_ms().items():
            median, p90 = (percentile(sorted(column_ms), share) for share in (0.5, 0.9))
            print(f"{port}  {name:10} {median:7.3f} {p90:7.3f} ms")


if __name__ == "__main__":
    main()
