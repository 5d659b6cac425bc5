"""What came back: one record for each request, as plain data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class ErrorKind(str, Enum):
    """Why a request gave no measurement."""

    REFUSED = "refused"
    """Nobody listens."""
    UNREACHABLE = "unreachable"
    """No connection for another reason."""
    RESET = "reset"
    """The connection broke."""
    TIMEOUT = "timeout"
    """Not over within the time that was allowed."""
    OVERLOADED = "overloaded"
    """429: the server takes no more for now."""
    HTTP_STATUS = "http status"
    """Another status than 200."""
    BAD_BODY = "bad body"
    """Not HTTP, not an event stream, not UTF-8, or not JSON."""
    SERVER_ERROR = "server error"
    """An error inside the stream."""
    NO_CONTENT = "no content"
    """A whole stream without a single piece of text."""
    TRUNCATED = "truncated"
    """The stream ended without a reason to."""
    INTERRUPTED = "interrupted"
    """The run was ended while this request ran; says nothing about the server."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error and its particulars in a line."""

    kind: ErrorKind
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request as the client saw it. Times are seconds since the run began.

    Attributes:
        intended_s: when it was due; later sending is the client's or its concurrency limit's doing.
        sent_s: just before its first byte was handed to the socket; None: there was no connection.
        first_byte_s: the first bytes of the response arrived.
        token_times_s: arrival of each piece of text; pieces that came in one read share their time.
        token_counts: tokens in each piece as the server says; None where it does not say, and
            ``completion_tokens`` may be more than there are pieces.
        ended_s: the last byte arrived, or the failure was noticed.
        failure: why it counts as an error; a failed request may have content, which no latency is
            taken from.
        status: of HTTP, or None.
        retry_after_s: when to come again, as the server says; None where it does not say.
        planned_prompt_tokens: what the workload meant the prompt to have.
        ttft_slo_ms: what the request itself asked for; None: nothing.
        prompt_tokens, cached_tokens, completion_tokens: the server's counts, None where it gives
            none; without one ``completion_tokens`` is the number of pieces.
        tokens_counted_by: ``"usage"``, or ``"pieces"`` where the server counted nothing.
        timing: the server's own account of the request, where it was asked for one.
    """

    index: int
    kind: str
    intended_s: float
    sent_s: float | None
    first_byte_s: float | None = None
    token_times_s: tuple[float, ...] = ()
    token_counts: tuple[int, ...] | None = None
    ended_s: float
    failure: Failure | None = None
    status: int | None = None
    retry_after_s: float | None = None
    finish_reason: str | None = None
    planned_prompt_tokens: int = 0
    ttft_slo_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int = 0
    tokens_counted_by: str = "pieces"
    timing: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether latencies can be taken from it."""
        return self.failure is None

    @property
    def first_content_s(self) -> float | None:
        """When the first piece of text arrived: not a role, nothing empty."""
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def last_content_s(self) -> float | None:
        """When the last piece of text arrived."""
        return self.token_times_s[-1] if self.token_times_s else None

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first content."""
        return _between(self.sent_s, self.first_content_s)

    @property
    def intended_ttft_s(self) -> float | None:
        """From when it was due to the first content: what a user waits whom the client kept too."""
        return _between(self.intended_s, self.first_content_s)

    @property
    def e2e_s(self) -> float | None:
        """From sending to the last content."""
        return _between(self.sent_s, self.last_content_s)

    @property
    def intended_e2e_s(self) -> float | None:
        """From when it was due to the last content."""
        return _between(self.intended_s, self.last_content_s)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first piece; None where there is none."""
        first = self.token_counts[0] if self.token_counts else 1
        later = self.completion_tokens - first
        if later < 1 or len(self.token_times_s) < 2:
            return None
        return (self.token_times_s[-1] - self.token_times_s[0]) / later

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Times between pieces, one fewer than there are pieces."""
        times = self.token_times_s
        return tuple(later - earlier for earlier, later in itertools.pairwise(times))

    def to_json(self) -> dict[str, Any]:
        """Give the record as plain data."""
        data = asdict(self)
        if self.failure is not None:
            data["failure"] = {"kind": self.failure.kind.value, "detail": self.failure.detail}
        return data


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s


@dataclass(frozen=True, slots=True)
class LoadResult:
    """All records of a run, in the order of the plan.

    Attributes:
        began_s: the run's start on this process's ``time.monotonic()``.
        duration_s: from there to the end of the last request.
        partial: whether the run was ended before its plan was.
    """

    records: Sequence[RequestRecord]
    began_s: float
    duration_s: float
    partial: bool = False

    def without_warmup(self, warmup: int) -> LoadResult:
        """Drop the plan's first ``warmup`` requests; times stay as they are."""
        kept = tuple(record for record in self.records if record.index >= warmup)
        return LoadResult(kept, self.began_s, self.duration_s, self.partial)
