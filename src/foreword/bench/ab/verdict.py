"""What a run has shown, in a word, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from foreword.bench.ab.blocks import BlockPair, Side, failed_share
from foreword.bench.ab.effect import RESAMPLES, Effect, measure_effect
from foreword.bench.ab.metrics import METRICS, Goodput, Metric, find_metric
from foreword.bench.ab.settings import AA_CONFIDENCE, AbSettings

MAX_FAILED_SHARE = 0.01

Word = Literal["better", "not worse", "worse", "not shown", "faster, but not the same quality"]

EXIT_CODES: dict[Word, int] = {
    "better": 0,
    "not worse": 0,
    "worse": 3,
    "not shown": 4,
    "faster, but not the same quality": 5,
}
"""Apart from 1 and 2, which any command gives for errors."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a run: what side b is, beside side a.

    Attributes:
        reasons: what kept a better word from being said.
    """

    word: Word
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The process's exit status."""
        return EXIT_CODES[self.word]


@dataclass(frozen=True, slots=True)
class Findings:
    """All figures of a run.

    Attributes:
        primary: what decides.
        secondary: the others. They share one error: each interval's confidence is raised so that
            all of them hold together (Bonferroni).
        noise: side a beside itself by the primary metric; None: not measured.
    """

    primary: Effect | None
    secondary: tuple[Effect, ...]
    noise: Effect | None

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Primary and secondary ones."""
        return (() if self.primary is None else (self.primary,)) + self.secondary

    def to_json(self) -> dict[str, Any]:
        """Give the findings as plain data."""
        return {
            "primary": self.primary and self.primary.to_json(),
            "secondary": [effect.to_json() for effect in self.secondary],
            "aa": self.noise and self.noise.to_json(),
        }


def find(
    pairs: Sequence[BlockPair],
    aa_pairs: Sequence[BlockPair],
    settings: AbSettings,
    *,
    resamples: int = RESAMPLES,
) -> Findings:
    """Work out every figure that the blocks have."""
    rng = np.random.default_rng([settings.seed, 1])  # 0 draws the order

    def measure(metric: Metric, of: Sequence[BlockPair], confidence: float) -> Effect | None:
        return measure_effect(metric, of, confidence=confidence, rng=rng, resamples=resamples)

    decisive = find_metric(settings.primary)
    others = [metric for metric in METRICS if metric is not decisive]
    others = [metric for metric in others if metric.figure(pairs).count]
    shared = settings.shared_confidence(len(others))
    secondary = (measure(metric, pairs, shared) for metric in others)
    return Findings(
        primary=measure(decisive, pairs, settings.confidence),
        secondary=tuple(effect for effect in secondary if effect is not None),
        noise=measure(decisive, aa_pairs, AA_CONFIDENCE),
    )


def decide(
    findings: Findings,
    pairs: Sequence[BlockPair],
    settings: AbSettings,
    *,
    same_quality: bool | None = None,
    ended: str | None = None,
) -> Verdict:
    """Give the verdict that the primary metric allows.

    Args:
        pairs: those that were measured to their end.
        same_quality: whether side b predicts as well as side a; None: nothing made it look.
        ended: why the run stopped before its end, or None.
    """
    refusals = tuple(_refusals(findings, pairs, settings, ended))
    effect = findings.primary
    if refusals or effect is None:
        return Verdict("not shown", refusals)
    margin = settings.non_inferior
    not_worse = margin is not None and effect.worst_loss < margin
    if same_quality is False:
        if effect.word == "better":
            return Verdict("faster, but not the same quality")
        if effect.word == "not shown":
            return Verdict("not shown", ("side b does not have side a's quality.",))
    elif effect.word != "better" and not_worse:
        return Verdict("not worse", (f"side b is at most {effect.worst_loss:.1%} worse.",))
    return Verdict(effect.word)


def _refusals(
    findings: Findings, pairs: Sequence[BlockPair], settings: AbSettings, ended: str | None
) -> Iterator[str]:
    """Why these figures decide nothing, whatever they are."""
    if ended is not None:
        yield f"the run ended after {len(pairs)} of {settings.pairs} pairs of blocks: {ended}."
    if findings.primary is None:
        yield f"too few blocks have a figure for {settings.primary}."
    counted = isinstance(find_metric(settings.primary), Goodput)  # as requests that are not good
    sides: tuple[Side, Side] = ("a", "b")
    for side in sides if pairs and not counted else ():
        share = failed_share(pairs, side)
        if share > MAX_FAILED_SHARE:
            yield f"{share:.1%} of side {side}'s requests failed."
    if findings.noise is not None and findings.noise.word != "not shown":
        yield (
            "side a differs from side a: something other than the sides makes a difference here "
            "(a busy machine, a cache, the order)."
        )
