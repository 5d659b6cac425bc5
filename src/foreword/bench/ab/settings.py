"""How much an A/B run measures, and what it is judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foreword.config.option import option
from foreword.errors import ConfigError

METRIC_NAMES = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "goodput")

AA_CONFIDENCE = 0.99
"""Of side a's comparison with itself: one sound run in a hundred gets no verdict for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbSettings:
    """The design of a run. Each field's ``help`` says what it means.

    All of it is fixed before the run: nothing is added or left out when figures are in.

    Raises:
        ConfigError: a value that measures nothing.
    """

    pairs: int = option(24, "Pairs of blocks: in each pair a block to each side.")
    requests: int = option(10, "Requests of a block, after its warm-up.")
    warmup: int = option(2, "Requests at the start of each block that are thrown away.")
    aa_pairs: int = option(8, "Pairs of side a with itself, before all others; 0: none.")
    cooldown_s: float = option(0.2, "Seconds of pause before each block.")
    restart: bool | None = option(
        None,
        "Start a side's server anew before each of its blocks: of two equal processes one may stay "
        "slower for life. Default: where it is started by options of `foreword serve`.",
    )
    primary: str = option("ttft_p50", f"The metric that decides: {', '.join(METRIC_NAMES)}.")
    confidence: float = option(0.95, "Of the primary metric's interval.")
    non_inferior: float | None = option(
        None, "Pass if side b is surely less than this share worse: 0.05 for 5 %."
    )
    seed: int = option(0, "Where prompts and order come from.")

    def __post_init__(self) -> None:
        _at_least("requests", self.requests, 1)
        _at_least("warmup", self.warmup, 0)
        _at_least("seed", self.seed, 0)
        _at_least("cooldown_s", self.cooldown_s, 0)
        if self.aa_pairs:
            _at_least("aa_pairs", self.aa_pairs, fewest_pairs(AA_CONFIDENCE))
        if not 0.5 <= self.confidence < 1:
            raise ConfigError("confidence", f"must be in [0.5, 1), not {self.confidence}")
        _at_least("pairs", self.pairs, fewest_pairs(self.shared_confidence(len(METRIC_NAMES) - 1)))
        if self.non_inferior is not None and not 0 < self.non_inferior < 1:
            raise ConfigError("non_inferior", f"must be in (0, 1), not {self.non_inferior}")
        if self.primary not in METRIC_NAMES:
            raise ConfigError("primary", f"must be one of {', '.join(METRIC_NAMES)}")

    def shared_confidence(self, metrics: int) -> float:
        """Of each of some metrics' intervals, so that all hold together (Bonferroni)."""
        return 1 - (1 - self.confidence) / max(1, metrics)


def fewest_pairs(confidence: float) -> int:
    """How many pairs it takes for an exchange of labels to show anything with ``confidence``."""
    return 1 - math.floor(math.log2(1 - confidence))


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and not value >= least:
        raise ConfigError(name, f"must be at least {least}, not {value}")
