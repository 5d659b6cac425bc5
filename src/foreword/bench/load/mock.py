"""A server with known delays, which says when it really wrote: what a load client is judged by.

``python -m foreword.bench.load.mock`` runs it as a process of its own and prints ``port N``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import httptools


@dataclass(frozen=True, slots=True)
class MockRequest:
    """A request as it came in.

    Attributes:
        number: how many came before it.
        received_s: ``time.monotonic()`` when its first byte was there.
    """

    number: int
    received_s: float
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """How one request is answered.

    Attributes:
        first_token_s: from the first byte of the request to the first piece of text.
        gaps_s: before each piece after that one; a stall is a long one.
        tokens_per_piece: how many the usage counts for each piece.
        role_first: whether a chunk with only a role comes at once, as chat servers do.
        empty_pieces: chunks with an empty text before each piece.
    """

    first_token_s: float
    gaps_s: Sequence[float] = ()
    tokens_per_piece: int = 1
    role_first: bool = True
    empty_pieces: int = 0


Behaviour = Callable[[MockRequest], Script]


class MockServer:
    """Answers completions by script on a free port of 127.0.0.1; an async context manager.

    The last chunk of a stream has a member ``timing``: ``received_s`` and, for each piece,
    ``written_s``, both of this machine's ``time.monotonic()``, read just before each write. A
    client that stops reading is left alone with what fits its socket.

    Args:
        behaviour: called with each request when it has come, in the server's event loop.
    """

    def __init__(self, behaviour: Behaviour, *, port: int = 0) -> None:
        self.port = port
        self._behaviour = behaviour
        self._answers: set[asyncio.Task[None]] = set()
        self._count = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> MockServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self.answer), "127.0.0.1", self.port, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for answer in self._answers:
            answer.cancel()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def answer(
        self, transport: asyncio.Transport, path: str, received_s: float, raw: bytes
    ) -> None:
        """Begin to answer one request."""
        if not path.endswith("/completions"):
            transport.write(_whole({"data": [{"id": "mock"}]}) if "/models" in path else _NOT_FOUND)
            transport.close()
            return
        request = MockRequest(self._count, received_s, json.loads(raw))
        self._count += 1
        answer = _answer(transport, request, self._behaviour(request))
        task = asyncio.ensure_future(answer)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)


class _Connection(asyncio.Protocol):
    """Reads one request."""

    def __init__(self, answer: Callable[[asyncio.Transport, str, float, bytes], None]) -> None:
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._received_s = 0.0
        self._path = ""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received_s = self._received_s or time.monotonic()
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path += url.decode()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self._answer(self._transport, self._path, self._received_s, self._body)


async def _answer(transport: asyncio.Transport, request: MockRequest, script: Script) -> None:
    """Play the script, or as much of it as the client stays for.

    Writes past the transport, since uvloop's keeps what is written until the loop has gone round;
    to a copy of its socket, which stays ours when the client leaves.
    """
    theirs = transport.get_extra_info("socket")
    ours = socket.fromfd(theirs.fileno(), theirs.family, theirs.type)
    with contextlib.suppress(OSError), ours:
        await _stream(ours, request, script)
    transport.close()


async def _stream(client: socket.socket, request: MockRequest, script: Script) -> None:
    chat = "messages" in request.body
    client.sendall(_HEAD + (_event(_chunk(chat, None)) if script.role_first else b""))
    piece = _event(_chunk(chat, "")) * script.empty_pieces + _event(_chunk(chat, " token"))
    written_s: list[float] = []
    due_s = request.received_s + script.first_token_s
    for gap_s in (*script.gaps_s, None):
        while (wait_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        written_s.append(time.monotonic())
        client.sendall(piece)
        due_s += gap_s or 0.0
    usage = {
        "prompt_tokens": _prompt_tokens(request.body),
        "completion_tokens": len(written_s) * script.tokens_per_piece,
    }
    timing = {"received_s": request.received_s, "written_s": written_s}
    last = _event(_chunk(chat, "", finish_reason="length"))
    last += _event({"choices": [], "usage": usage, "timing": timing})
    client.sendall(last + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _prompt_tokens(body: dict[str, Any]) -> int:
    """Each word is a token."""
    prompt = body.get("prompt")
    if prompt is None:
        prompt = " ".join(message["content"] for message in body["messages"])
    return len(prompt.split() if isinstance(prompt, str) else prompt)


def _chunk(chat: bool, text: str | None, finish_reason: str | None = None) -> dict[str, Any]:
    if chat:
        content: dict[str, Any] = {
            "delta": {"role": "assistant"} if text is None else {"content": text}
        }
    else:
        content = {"text": text or ""}
    return {"choices": [{"index": 0, **content, "finish_reason": finish_reason}]}


def _event(chunk: dict[str, Any]) -> bytes:
    return _framed(b"data: %s\n\n" % json.dumps(chunk).encode())


def _framed(data: bytes) -> bytes:
    """As a chunk of HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _whole(answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        len(body),
        body,
    )


_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def steady(
    first_token_s: float, gap_s: float, *, tokens_per_piece: int = 1, empty_pieces: int = 0
) -> Behaviour:
    """Give a behaviour without noise: as many pieces as ``max_tokens`` asks for, evenly spaced."""

    def behave(request: MockRequest) -> Script:
        pieces = -(-int(request.body.get("max_tokens", 16)) // tokens_per_piece)
        return Script(
            first_token_s,
            (gap_s,) * (pieces - 1),
            tokens_per_piece=tokens_per_piece,
            empty_pieces=empty_pieces,
        )

    return behave


def main() -> None:
    """Serve until the process is ended."""
    import uvloop

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--first-token-ms", type=float, default=20.0)
    options.add_argument("--gap-ms", type=float, default=10.0)
    options.add_argument("--tokens-per-piece", type=int, default=1)
    options.add_argument("--empty-pieces", type=int, default=0)
    chosen = options.parse_args()
    behaviour = steady(
        chosen.first_token_ms / 1e3,
        chosen.gap_ms / 1e3,
        tokens_per_piece=chosen.tokens_per_piece,
        empty_pieces=chosen.empty_pieces,
    )

    async def serve() -> None:
        async with MockServer(behaviour, port=chosen.port) as server:
            print(f"port {server.port}", flush=True)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve())


if __name__ == "__main__":
    main()
