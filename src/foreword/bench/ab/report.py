"""All that a run found, as plain data; schema ``foreword.ab/1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foreword import __version__
from foreword.bench.ab.blocks import Block, BlockPair, Side, failed_share
from foreword.bench.ab.evidence import COUNTS, Evidence, differing, gather
from foreword.bench.ab.quality import Quality
from foreword.bench.ab.run import INTERRUPTED, Measured
from foreword.bench.ab.settings import AbSettings
from foreword.bench.ab.verdict import Findings, Verdict, decide, find
from foreword.bench.machine import describe_machine, now_text

SCHEMA = "foreword.ab/1"
EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # as shells have it for SIGINT

_SIDES: tuple[Side, Side] = ("a", "b")
_IDLE_CPU = 0.02
_FEW = 5


@dataclass(frozen=True, slots=True)
class AbReport:
    """A run, what came out, and what its reader should know.

    Attributes:
        sides: each side as it was given.
        workload: its name and settings.
        quality: None: nothing made it look.
        notes: what to know besides the figures.
    """

    created_at: str
    machine: dict[str, Any]
    sides: Mapping[Side, str]
    workload: dict[str, Any]
    settings: AbSettings
    measured: Measured
    evidence: Mapping[Side, Evidence]
    quality: Quality | None
    findings: Findings
    verdict: Verdict
    notes: tuple[str, ...]

    @classmethod
    def make(
        cls,
        measured: Measured,
        settings: AbSettings,
        *,
        sides: Mapping[Side, str],
        workload: dict[str, Any],
        quality: Quality | None = None,
        notes: Sequence[str] = (),
    ) -> AbReport:
        """Work out figures and verdict."""
        findings = find(measured.pairs, measured.aa_pairs, settings)
        same_quality = None if quality is None else quality.same
        evidence: dict[Side, Evidence] = {side: gather(measured.records[side]) for side in _SIDES}
        return cls(
            created_at=now_text(),
            machine=describe_machine(),
            sides=sides,
            workload=workload,
            settings=settings,
            measured=measured,
            evidence=evidence,
            quality=quality,
            findings=findings,
            verdict=decide(
                findings,
                measured.pairs,
                settings,
                same_quality=same_quality,
                ended=measured.ended,
            ),
            notes=(*notes, *_notes(measured, evidence, sides, settings)),
        )

    @property
    def partial(self) -> bool:
        """Whether the run ended before its plan did."""
        return self.measured.ended is not None

    @property
    def exit_code(self) -> int:
        """The verdict's, or that of an interrupt or an error."""
        if self.measured.ended is None:
            return self.verdict.exit_code
        return EXIT_INTERRUPTED if self.measured.ended == INTERRUPTED else EXIT_ERROR

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data; single requests as milliseconds in each block."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "machine": self.machine,
            "sides": dict(self.sides),
            "workload": self.workload,
            "settings": asdict(self.settings),
            "partial": self.partial,
            "ended": self.measured.ended,
            "verdict": {"word": self.verdict.word, "reasons": list(self.verdict.reasons)},
            "exit_code": self.exit_code,
            "notes": list(self.notes),
            **self.findings.to_json(),
            "quality": self.quality and self.quality.to_json(),
            "evidence": {side: dict(found) for side, found in self.evidence.items()},
            "idle_cpu": {side: _mean(self.measured.idle_cpu[side]) for side in _SIDES},
            "pairs": [_pair_to_json(pair) for pair in self.measured.pairs],
            "aa_pairs": [_pair_to_json(pair) for pair in self.measured.aa_pairs],
        }


def _notes(
    measured: Measured,
    evidence: Mapping[Side, Evidence],
    sides: Mapping[Side, str],
    settings: AbSettings,
) -> Iterator[str]:
    pairs = measured.pairs
    for side in _SIDES:
        share = failed_share(pairs, side) if pairs else 0.0
        if share:
            yield f"{share:.1%} of side {side}'s requests failed; latencies leave them out."
        busy = _mean(measured.idle_cpu[side])
        if busy is not None and busy > _IDLE_CPU:
            yield f"side {side} used {busy:.0%} of a core while it had nothing to do."
    if not settings.aa_pairs:
        yield "no A/A run: nothing says how much side a differs from itself here."
    if not pairs:
        return
    differences = differing(evidence["a"], evidence["b"])
    told = evidence["a"].keys() - set(COUNTS)
    if told and sides["a"] != sides["b"] and not differences:
        yield "the responses show no difference between the sides: did the options take effect?"
    lengths = [name for name in ("prompt_tokens", "completion_tokens") if name in differences]
    if lengths:
        yield f"the sides did not do the same work: {' and '.join(lengths)} differ."
    slowest = sum(len(pair.a.ttft_s) for pair in pairs) // 100
    if slowest < _FEW:
        yield f"p99 stands on {1 + slowest} of each side's requests: do not build on it."


def _pair_to_json(pair: BlockPair) -> dict[str, Any]:
    return {"first": pair.first, "a": _block_to_json(pair.a), "b": _block_to_json(pair.b)}


def _block_to_json(block: Block) -> dict[str, Any]:
    def milliseconds(values: np.typing.NDArray[np.float64]) -> list[float | None]:
        return [None if np.isnan(value) else round(value * 1e3, 3) for value in values.tolist()]

    return {
        "ttft_ms": milliseconds(block.ttft_s),
        "tpot_ms": milliseconds(block.tpot_s),
        "num_good": block.num_good,
        "duration_s": round(block.duration_s, 4),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
