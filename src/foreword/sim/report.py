"""What came out of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from foreword import __version__
from foreword.bench.load.record import LoadResult, RequestRecord
from foreword.bench.load.summary import LoadSummary, Slo
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import EngineConfig
from foreword.sched.outputs import Counters
from foreword.sim.cost import CostProfile
from foreword.sim.curve import Point
from foreword.sim.settings import SimSettings

SCHEMA = "foreword.simulate/1"


@dataclass(frozen=True, kw_only=True)
class ReplicaReport:
    """What one replica did.

    Attributes:
        result: the requests that it got, as a load run would record them.
        totals: the scheduler's counters.
        busy_s: how long it computed.
        points: what it had to do over time.
    """

    result: LoadResult
    totals: Counters
    busy_s: float
    points: Sequence[Point]


@dataclass(frozen=True, kw_only=True)
class PolicyReport:
    """What came out under one scheduling policy.

    Attributes:
        duration_s: virtual seconds from the start to the last event.
        result: every request.
    """

    policy: str
    duration_s: float
    result: LoadResult
    summary: LoadSummary
    replicas: Sequence[ReplicaReport]

    @cached_property
    def totals(self) -> Counters:
        """The counters of all replicas, added up."""
        return sum((replica.totals for replica in self.replicas), Counters())

    @property
    def utilisation(self) -> float:
        """Share of the time that the replicas computed."""
        busy_s = sum(replica.busy_s for replica in self.replicas)
        return busy_s / (self.duration_s * len(self.replicas)) if self.duration_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data, with a short account of every request."""
        return {
            "policy": self.policy,
            "duration_s": self.duration_s,
            "summary": self.summary.to_json(),
            "utilisation": self.utilisation,
            "hit_rate": hit_rate(self.totals),
            "waste_ratio": self.totals.waste_ratio,
            "totals": _plain(self.totals),
            "replicas": [
                {
                    "requests": len(replica.result.records),
                    "busy_s": replica.busy_s,
                    "totals": _plain(replica.totals),
                    "points": [point._asdict() for point in replica.points],
                }
                for replica in self.replicas
            ],
            "requests": [
                _short(record, number)
                for number, replica in enumerate(self.replicas)
                for record in replica.result.records
            ],
        }


def hit_rate(totals: Counters) -> float:
    """Share of prompt tokens that came from the prefix cache."""
    return totals.cached_prompt_tokens / max(1, totals.prompt_tokens)


def _plain(totals: Counters) -> dict[str, int]:
    """Without what tiers would have loaded: there are none."""
    names = (each.name for each in fields(totals) if each.name != "loaded_prompt_tokens")
    return {name: getattr(totals, name) for name in names}


def _short(record: RequestRecord, replica: int) -> dict[str, Any]:
    return {
        "index": record.index,
        "kind": record.kind,
        "replica": replica,
        "intended_s": record.intended_s,
        "ttft_s": record.intended_ttft_s,
        "tpot_s": record.tpot_s,
        "e2e_s": record.intended_e2e_s,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens,
        "failure": record.failure and record.failure.detail,
    }


@dataclass(frozen=True, kw_only=True)
class SimReport:
    """What was simulated, on what, and what came out under each policy.

    Attributes:
        config: of the engines, but for the policy.
    """

    profile: CostProfile
    workload: str
    workload_settings: dict[str, Any]
    notes: Sequence[str]
    settings: SimSettings
    slo: Slo | None
    admission: AdmissionConfig
    config: EngineConfig
    policies: Sequence[PolicyReport]

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data; ``schema`` names the format."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "cost": self.profile.to_json(),
            "workload": {"name": self.workload, **self.workload_settings, "notes": [*self.notes]},
            "settings": asdict(self.settings),
            "slo": self.slo and asdict(self.slo),
            "admission": asdict(self.admission),
            "engine": {choice.name: choice.value for choice in self.config.choices},
            "policies": [policy.to_json() for policy in self.policies],
        }
