"""A request as the engine sees it: token ids and how to continue them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from foreword.core.params import SamplingParams, check_int, check_number

MAX_PRIORITY = 2**31 - 1
MAX_TTFT_SLO_MS = 24 * 3600 * 1000.0


class FinishReason(str, Enum):
    """Why a completion ended."""

    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens or the context was reached
    ABORT = "abort"  # cancelled: the client left, or the engine stopped
    ERROR = "error"  # the step failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgency:
    """How soon a request wants its first token; scheduling policies decide what comes of it.

    Attributes:
        priority: smaller is served earlier (vLLM's meaning), by the policy ``priority``; and its
            blocks are kept longer, see `foreword.kv.eviction.weight`.
        ttft_slo_ms: within how many milliseconds the first token is wanted, for ``deadline``.

    Raises:
        InvalidRequestError: a value is of the wrong type or out of range.
    """

    priority: int = 0
    ttft_slo_ms: float | None = None

    def __post_init__(self) -> None:
        check_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.ttft_slo_ms is not None:
            check_number("ttft_slo_ms", self.ttft_slo_ms, 0.0, MAX_TTFT_SLO_MS, open_low=True)


NOT_URGENT = Urgency()


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to continue it, validated and ready to schedule.

    ``seed`` is ``params.seed``, or one that the engine drew where the caller gave none, so that
    everything below is a function of its inputs. ``max_tokens`` is resolved: never None, and
    prompt + max_tokens fits the context. ``eos_token_ids`` is empty with ``ignore_eos``.
    Only requests with the same ``cache_salt`` find each other's blocks in the prefix cache.
    Those with the same ``tenant`` share one part of the machine among them, see
    `foreword.sched.fair`.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    eos_token_ids: frozenset[int] = field(default_factory=frozenset)
    seed: int = 0
    arrival_s: float = 0.0
    cache_salt: str = ""
    urgency: Urgency = NOT_URGENT
    tenant: str = ""
