"""Times the prefix cache's book-keeping: ``python tools/time_prefix_cache.py``.

Prompts of 4,096 tokens that nobody has sent before, on a full pool of 100,096 blocks: each has to
look itself up, take the blocks of others, and make its own findable.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable

from foreword.config.cache import CacheConfig
from foreword.kv import BlockTable, KVCache

TOKENS, BLOCK, PROMPTS = 4096, 16, 391
CONTEXT_COST = 1e-3  # about that of a small model


def main() -> None:
    """Fill a pool, then time what a prompt does, part by part."""
    rng = random.Random(1)
    cache = KVCache(CacheConfig(num_blocks=PROMPTS * TOKENS // BLOCK), b"root", CONTEXT_COST)
    parts: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        call()
        parts.setdefault(name, []).append(time.perf_counter() - began_s)

    for number in range(PROMPTS + 60):
        table = BlockTable(cache, [rng.randrange(49_000) for _ in range(TOKENS)])
        if number == PROMPTS:
            parts.clear()
            gc.collect()
            gc.freeze()
        timed("look up", lambda table=table: table.match(TOKENS - 1))
        hit = table.match(TOKENS - 1)
        timed("take 256 blocks", lambda table=table, hit=hit: table.start(hit, TOKENS))
        timed("insert", lambda table=table: table.publish(TOKENS))
        timed("release", table.release)
        timed("name (tiers only)", lambda table=table: table.chain.digest(TOKENS // BLOCK - 1))
    for name, seconds in parts.items():
        print(f"{name:20} {statistics.median(seconds) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
