"""Puts a fixed delay before each response of a server that it starts.

``python delaying_proxy.py --port N --delay-ms 5 -- COMMAND WITH {inner}``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess

_PIECE_BYTES = 65536


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float = 0.0
) -> None:
    """Pass bytes on, the first ones after ``delay_s``, until there are no more."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_PIECE_BYTES):
            await asyncio.sleep(delay_s)
            delay_s = 0.0
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(port: int, inner_port: int, delay_s: float) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", inner_port)
        except OSError:  # the server is not up yet
            writer.close()
            return
        await asyncio.gather(forward(reader, inner_writer), forward(inner_reader, writer, delay_s))

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--delay-ms", type=float, required=True)
    options.add_argument("command", nargs="+")
    chosen = options.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        inner_port = probe.getsockname()[1]
    command = [word.replace("{inner}", str(inner_port)) for word in chosen.command]
    with subprocess.Popen(command):
        asyncio.run(serve(chosen.port, inner_port, chosen.delay_ms / 1e3))
