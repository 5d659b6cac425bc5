"""Servers that say whatever bytes a test wants, on real sockets."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chunk(text: str = "", finish: str | None = None) -> bytes:
    """An event of a chat stream."""
    reason = f'"{finish}"' if finish else "null"
    return b'data: {"choices":[{"delta":{"content":"%s"},"finish_reason":%s}]}\n\n' % (
        text.encode(),
        reason.encode(),
    )


DONE = chunk(finish="stop") + b"data: [DONE]\n\n"


class Pause(float):
    """Seconds in which nothing is sent."""


class Reset:
    """The connection breaks, with an RST."""


Step = bytes | Pause | type[Reset]


@contextlib.contextmanager
def raw_server(*answers: Sequence[Step]) -> Iterator[str]:
    """Run a server that plays one answer to each request, the last one to all others.

    Yields:
        Its URL.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    over = threading.Event()

    remaining = itertools.chain(answers, itertools.repeat(answers[-1]))

    def serve() -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                connection, _ = listener.accept()
                threading.Thread(
                    target=_play, args=(connection, remaining, over), daemon=True
                ).start()

    accepting = threading.Thread(target=serve, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5.0)


def _play(
    connection: socket.socket, answers: Iterator[Sequence[Step]], over: threading.Event
) -> None:
    with connection, contextlib.suppress(OSError):
        if not _read_request(connection):  # somebody looked whether anybody listens
            return
        for step in next(answers):
            if isinstance(step, Pause):
                over.wait(step)
            elif step is Reset:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            else:
                connection.sendall(step)
                time.sleep(0.005)  # so that it is a segment of its own


def _read_request(connection: socket.socket) -> bool:
    """Read all of it: what is left unread would make the end of the connection a reset."""
    with connection.makefile("rb") as request:
        length = 0
        for number, line in enumerate(request):
            if line == b"\r\n":
                request.read(length)
                return True
            name, _, value = line.partition(b":")
            if number and name.lower() == b"content-length":
                length = int(value)
    return False
