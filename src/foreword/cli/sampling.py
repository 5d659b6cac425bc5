"""How `run` and `chat` let the next token be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.option import option
from foreword.core.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """The sampling parameters that a person at a terminal reaches for."""

    max_tokens: int | None = option(None, "Most tokens of an answer. Default: all that fits.")
    temperature: float = option(0.0, "0 takes the likeliest token; higher is more varied.")
    top_k: int = option(0, "Choose among this many likeliest tokens; 0: all.")
    top_p: float = option(1.0, "Choose among the likeliest tokens that make up this probability.")
    min_p: float = option(0.0, "Leave out tokens less likely than this share of the likeliest.")
    repetition_penalty: float = option(1.0, "Over 1 makes tokens that occurred less likely.")
    seed: int | None = option(None, "The same seed gives the same answer.")

    def params(self) -> SamplingParams:
        """Return them as the engine takes them; raises `InvalidRequestError`."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
        )
