"""How much a step may hold."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of a step and of a sequence.

    Attributes:
        max_num_batched_tokens: tokens that one step may compute.
        max_num_seqs: sequences that may run at once.
        max_model_len: tokens (prompt + output) that one sequence may have.
    """

    max_num_batched_tokens: int = 512
    max_num_seqs: int = 64
    max_model_len: int

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(name, f"must be a whole number of at least 1, not {value!r}")
