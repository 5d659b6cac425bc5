"""The engine's statistics as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foreword.metrics import catalog
from foreword.metrics.prometheus import Reading
from foreword.sched.outputs import SchedulerStats


def engine_readings(stats: SchedulerStats, tiers: Iterable[str]) -> Iterator[Reading]:
    """Yield the numbers that the engine keeps itself.

    Tokens are counted there and not by the server, so that what was computed for clients that left
    is in.

    Args:
        tiers: names of the tiers below the pool.
    """
    blocks, totals = stats.blocks, stats.totals
    computed = totals.prompt_tokens - totals.cached_prompt_tokens
    from_pool = totals.cached_prompt_tokens - totals.loaded_prompt_tokens.total()
    yield Reading(catalog.RUNNING, stats.num_running)
    yield Reading(catalog.WAITING, stats.num_waiting)
    yield Reading(catalog.WAITING_TOKENS, stats.num_waiting_tokens)
    yield Reading(catalog.KV_BLOCKS, blocks.free, ("free",))
    yield Reading(catalog.KV_BLOCKS, blocks.cached, ("cached",))
    yield Reading(catalog.KV_BLOCKS, blocks.referenced, ("referenced",))
    yield Reading(catalog.KV_USAGE, blocks.referenced / blocks.total)
    yield Reading(catalog.PROMPT_TOKENS, computed, ("computed",))
    yield Reading(catalog.PROMPT_TOKENS, from_pool, ("pool",))
    for tier in tiers:
        yield Reading(catalog.PROMPT_TOKENS, totals.loaded_prompt_tokens[tier], (tier,))
    yield Reading(catalog.GENERATION_TOKENS, totals.generated_tokens)
    yield Reading(catalog.COMPUTED_TOKENS, totals.computed_tokens)
    yield Reading(catalog.RECOMPUTED_TOKENS, totals.recomputed_tokens)
    yield Reading(catalog.PREEMPTIONS, totals.preemptions)
