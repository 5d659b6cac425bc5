"""How much a step may hold, and what goes first."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from foreword.errors import ConfigError

SCHEDULING_POLICIES = ("fcfs", "shortest", "priority", "deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of a step and of a sequence.

    Attributes:
        max_num_batched_tokens: tokens that one step may compute.
        max_num_seqs: sequences that may run at once.
        max_model_len: tokens (prompt + output) that one sequence may have.
        scheduling_policy: the order of prompts, one of `SCHEDULING_POLICIES`.
        tpot_slo_ms: milliseconds that a step with running streams may take; None: no limit.
    """

    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_model_len: int
    scheduling_policy: str = "shortest"
    tpot_slo_ms: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(name, f"must be a whole number of at least 1, not {value!r}")
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            known = ", ".join(SCHEDULING_POLICIES)
            raise ConfigError(
                "scheduling_policy", f"must be one of {known}, not {self.scheduling_policy!r}"
            )
        if self.tpot_slo_ms is not None and not 0 < self.tpot_slo_ms < inf:
            raise ConfigError("tpot_slo_ms", f"must be over 0 and finite, not {self.tpot_slo_ms:g}")
