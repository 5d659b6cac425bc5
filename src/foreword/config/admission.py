"""What may wait, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.option import option
from foreword.core.request import MAX_TTFT_SLO_MS
from foreword.errors import ConfigError

_MOST_REQUESTS = 1_000_000
_LONGEST_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """Limits of the queue; each field's ``help`` says what it means.

    Raises:
        ConfigError: a value that cannot work.
    """

    ttft_slo_ms: float | None = option(
        None,
        "Refuse with 429 what would have its first token later than so many milliseconds after it "
        "came, as predicted, unless it brings a ttft_slo_ms of its own. Default: none.",
    )
    max_queue_requests: int = option(
        1024, "Prompts that may wait for their first step; what comes on top is refused with 429."
    )
    max_queue_tokens: int = option(
        2**20, "Uncached tokens that waiting prompts may have before more are refused with 429."
    )
    queue_timeout_s: float = option(
        600.0, "Seconds that a request may wait for its first step before it is ended with 503."
    )

    def __post_init__(self) -> None:
        slo_ms = self.ttft_slo_ms
        if slo_ms is not None and not 0 < slo_ms <= MAX_TTFT_SLO_MS:
            raise ConfigError(
                "ttft_slo_ms", f"must be over 0 and at most {MAX_TTFT_SLO_MS:g}, not {slo_ms:g}"
            )
        if not 1 <= self.max_queue_requests <= _MOST_REQUESTS:
            raise ConfigError(
                "max_queue_requests",
                f"must be in [1, {_MOST_REQUESTS}], not {self.max_queue_requests}",
            )
        if self.max_queue_tokens < 1:
            raise ConfigError(
                "max_queue_tokens", f"must be at least 1, not {self.max_queue_tokens}"
            )
        if not 0 < self.queue_timeout_s <= _LONGEST_S:
            raise ConfigError(
                "queue_timeout_s",
                f"must be over 0 and at most {_LONGEST_S:g}, not {self.queue_timeout_s:g}",
            )
