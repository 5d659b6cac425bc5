"""How fast prompts are computed, as measured while serving."""

from __future__ import annotations

_ENOUGH_TOKENS = 64  # in a step, to tell how fast prompts are computed
_WEIGHT = 0.2  # of the newest measurement


class PrefillSpeed:
    """A moving average over the steps that computed much of prompts.

    Attributes:
        tokens_per_s: None until there was such a step.
    """

    def __init__(self) -> None:
        self.tokens_per_s: float | None = None

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Take note of how long a step took."""
        if num_tokens < _ENOUGH_TOKENS:
            return
        rate = num_tokens / max(1e-6, seconds)
        before = rate if self.tokens_per_s is None else self.tokens_per_s
        self.tokens_per_s = before + _WEIGHT * (rate - before)

    def seconds(self, num_tokens: int) -> float | None:
        """How long computing so many tokens would take; None until that is known."""
        return None if self.tokens_per_s is None else num_tokens / self.tokens_per_s
