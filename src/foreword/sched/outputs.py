"""What the scheduler reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from foreword.core.request import FinishReason
from foreword.core.step import TokenLogprob
from foreword.kv import KVUsage


@dataclass(slots=True)  # not frozen: that takes four times as long to make, for every token
class SequenceUpdate:
    """News of one completion. Valid until the next results are taken in: a stream has but one.

    Attributes:
        request_id: the request.
        index: which of its ``n`` completions.
        token_ids: new tokens; a token that ended the completion is among them.
        logprobs: one for each of ``token_ids`` where ``params.logprobs`` is set; else empty.
        prompt_logprobs: one for each prompt token but the first, once per request, on its first
            update, where ``params.prompt_logprobs`` is set; else empty.
        finish_reason: set on the completion's last update.
        num_cached_tokens: prompt tokens that came from the cache when the request was admitted.
    """

    request_id: str
    index: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    num_cached_tokens: int = 0


@dataclass(slots=True)
class Counters:
    """Sums since the scheduler was made.

    Attributes:
        steps: steps applied.
        prompt_tokens: tokens of the prompts that have been admitted.
        cached_prompt_tokens: those of them that came from the cache. Only a request's first
            admission counts: what it finds again after a preemption is no hit.
        loaded_prompt_tokens: those of the cached ones that came from a tier, by its name.
        computed_tokens: tokens computed, prompt or not.
        recomputed_tokens: those of them that had been computed before a preemption.
        generated_tokens: tokens sampled.
        preemptions: sequences that had to give their blocks up.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    loaded_prompt_tokens: Counter[str] = field(default_factory=Counter)
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0

    def __add__(self, other: Counters) -> Counters:
        """The sums of two schedulers."""
        return Counters(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )

    @property
    def waste_ratio(self) -> float:
        """The part of all computed tokens that had been computed before a preemption."""
        return self.recomputed_tokens / self.computed_tokens if self.computed_tokens else 0.0

    def admit(self, num_tokens: int, num_cached: int, loaded: Mapping[str, int]) -> None:
        """Count a prompt.

        Args:
            loaded: what tiers gave for it; some of it may have been evicted since.
        """
        self.prompt_tokens += num_tokens
        self.cached_prompt_tokens += num_cached
        for tier, num_loaded in loaded.items():
            counted = min(num_loaded, num_cached)
            self.loaded_prompt_tokens[tier] += counted
            num_cached -= counted

    def copy(self) -> Counters:
        """What they are now."""
        return replace(self, loaded_prompt_tokens=self.loaded_prompt_tokens.copy())


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """A snapshot: sequences now, blocks now, and sums so far.

    Attributes:
        num_waiting_tokens: what those that wait will have computed, as far as can be told.
    """

    num_running: int
    num_waiting: int
    num_waiting_tokens: int
    blocks: KVUsage
    totals: Counters
