"""A mock server on a noisy machine, as a program: ``python noisy_server.py --port N``.

Servers with the same seed share the machine's slow spells.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from support.noise import NoisyMachine

from foreword.bench.load.mock import MockRequest, MockServer, Script


async def serve(port: int, seed: int, first_token_s: float) -> None:
    machine = NoisyMachine(seed)

    def behave(request: MockRequest) -> Script:
        slowness = machine.slowness(request.received_s)
        gaps = (0.001 * slowness,) * (int(request.body["max_tokens"]) - 1)
        return Script(first_token_s * slowness, gaps)

    async with MockServer(behave, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--first-token-ms", type=float, default=8.0)
    chosen = options.parse_args()
    asyncio.run(serve(chosen.port, chosen.seed, chosen.first_token_ms / 1e3))
