"""What is kept of a request that the server took: no text, no tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from foreword.core.trace import RequestTrace
from foreword.metrics.lifetime import Lifetime
from foreword.metrics.partition import Part, partition, seconds_by_part

Status = Literal["running", "finished", "aborted", "failed"]

_SEPARATOR = "/"  # in no request's id


def prompt_id(request_id: str, index: int) -> str:
    """The engine's name for a request's prompt: the request's own id for the first."""
    return f"{request_id}{_SEPARATOR}{index}" if index else request_id


def request_of(prompt_id: str) -> str:
    """The id of the request that a prompt belongs to."""
    return prompt_id.partition(_SEPARATOR)[0]


@dataclass(slots=True)
class TokenCounts:
    """Tokens of a request, over all of its prompts and completions.

    Attributes:
        cached: prompt tokens that came from the prefix cache.
        loaded: prompt tokens that came from a tier below the pool, by its name.
    """

    prompt: int = 0
    cached: int = 0
    loaded: Counter[str] = field(default_factory=Counter)
    generated: int = 0


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request's life, from its head to its last byte.

    Attributes:
        id: the id that its answer carries.
        received_unix_s: when its head was read, on the wall clock.
        completions: how many it asks for, over all prompts.
        finish_reasons: of the completions that have ended, in the order of ending.
        saved_s: what the prefix cache saved, over all prompts.
        trace: of the prompt that decides the TTFT: the first one with content in a stream, the last
            one to end without. Until that is known: any of them.
        traceparent: the header of that name, as it came.
    """

    id: str
    endpoint: str
    model: str
    stream: bool
    completions: int
    lifetime: Lifetime
    received_unix_s: float
    trace: RequestTrace = field(default_factory=RequestTrace)
    traceparent: str | None = None
    status: Status = "running"
    finish_reasons: list[str] = field(default_factory=list)
    usage: TokenCounts = field(default_factory=TokenCounts)
    saved_s: float = 0.0
    _parts_s: dict[str, float] | None = None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; see `Lifetime`."""
        return self.lifetime.ttft_s

    @property
    def predicted_ttft_s(self) -> float | None:
        """What its TTFT was predicted to be when it was queued; what the server adds is left out.

        None: it was not queued.
        """
        trace = self.trace
        if trace.forecast_s is None or trace.queued_s is None:
            return None
        return trace.queued_s + trace.forecast_s - self.lifetime.received_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first, as sampled; None for fewer than two."""
        first, last = self.trace.first_sampled, self.trace.last
        if first is None or last is None or first.ended_s is None or last.ended_s is None:
            return None
        per_completion = self.usage.generated / self.completions
        return (
            (last.ended_s - first.ended_s) / (per_completion - 1) if per_completion >= 2 else None
        )

    def parts(self, now: float) -> list[Part]:
        """The partition of its TTFT; where there is no content (yet), of its life so far."""
        life = self.lifetime
        end_s = life.first_written_s or life.ended_s or now
        return partition(life, self.trace, end_s, whole=not self.stream)

    @property
    def parts_s(self) -> dict[str, float]:
        """Seconds by part, of a request that is over; worked out once."""
        if self._parts_s is None:
            self._parts_s = seconds_by_part(self.parts(self.lifetime.ended_s or 0.0))
        return self._parts_s
