"""The engine's statistics as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from foreword.metrics.prometheus import Reading
from foreword.sched.outputs import SchedulerStats


def engine_readings(stats: SchedulerStats) -> Iterator[Reading]:
    """Yield the numbers that the engine keeps itself.

    Tokens are counted here and not by the server, so that what was computed for clients that left
    is in. A hit counts once: what a preempted sequence finds again is none.
    """
    blocks, totals = stats.blocks, stats.totals
    yield Reading("num_requests_running", "Sequences that run.", stats.num_running)
    yield Reading("num_requests_waiting", "Sequences that wait.", stats.num_waiting)
    yield Reading("kv_blocks_total", "KV blocks in the pool.", blocks.total)
    yield Reading("kv_blocks_free", "KV blocks that hold nothing.", blocks.free)
    yield Reading("kv_blocks_cached", "KV blocks that only the prefix cache holds.", blocks.cached)
    yield Reading(
        "kv_cache_usage_ratio",
        "Share of the KV blocks that running sequences hold; cached ones are free to take.",
        blocks.referenced / blocks.total,
    )
    yield Reading("steps", "Steps of the engine.", totals.steps, total=True)
    yield Reading("prompt_tokens", "Tokens of prompts.", totals.prompt_tokens, total=True)
    yield Reading(
        "cached_prompt_tokens",
        "Tokens of prompts that came from the prefix cache.",
        totals.cached_prompt_tokens,
        total=True,
    )
    yield Reading("computed_tokens", "Tokens computed.", totals.computed_tokens, total=True)
    yield Reading(
        "recomputed_tokens",
        "Tokens computed again after a preemption.",
        totals.recomputed_tokens,
        total=True,
    )
    yield Reading(
        "preemptions", "Sequences that lost their blocks.", totals.preemptions, total=True
    )
