"""A whole load run: prepared, measured, summarised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from foreword import __version__
from foreword.bench.load.calibrate import Calibration, calibrate
from foreword.bench.load.plan import Workload
from foreword.bench.load.prepare import prepare
from foreword.bench.load.record import LoadResult, RequestRecord
from foreword.bench.load.run import run_load
from foreword.bench.load.summary import LoadSummary, Slo, summarise
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Recipe, plan
from foreword.bench.machine import describe_machine, now_text
from foreword.errors import ConfigError

SCHEMA = "foreword.bench.load/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """How to load a server.

    Attributes:
        num_prompts: requests that are measured; a trace may have fewer.
        warmup: requests before them, thrown away.
        request_rate: requests a second, whatever becomes of them; None: as soon as there is room.
        burstiness: see `plan`.
        max_concurrency: the most that run at once; None for no limit.
        calibrate: measure the client itself first.
        ask_for: see `prepare_target`.

    Raises:
        ConfigError: a value that cannot work.
    """

    num_prompts: int = 100
    warmup: int = 2
    seed: int = 0
    request_rate: float | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    timeout_s: float = 300.0
    calibrate: bool = True
    ask_for: tuple[str, ...] = ("ignore_eos", "timing")
    slo: Slo | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_prompts", 1), ("warmup", 0)):
            if getattr(self, name) < least:
                raise ConfigError(name, f"must be at least {least}, not {getattr(self, name)}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ConfigError("max_concurrency", f"must be at least 1, not {self.max_concurrency}")
        if not self.timeout_s > 0:
            raise ConfigError("timeout_s", f"must be above 0, not {self.timeout_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What was asked, of whom, by whom, and what came out.

    Attributes:
        machine: the client's.
        tokens_counted_by: how the lengths of prompts were planned.
        result: every request, without the warm-up.
    """

    created_at: str
    machine: dict[str, Any]
    target: Target
    tokens_counted_by: str
    settings: LoadSettings
    workload: Workload
    calibration: Calibration | None
    result: LoadResult
    summary: LoadSummary

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data, every request included; ``schema`` names the format."""
        settings = self.settings
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "partial": self.result.partial,
            "machine": self.machine,
            "target": {
                "url": self.target.url,
                "model": self.target.model,
                "endpoint": self.target.endpoint,
                "token_ids": self.target.token_ids,
                "extra": dict(self.target.extra),
            },
            "workload": {
                "name": self.workload.name,
                **self.workload.settings,
                "tokens_counted_by": self.tokens_counted_by,
                "notes": self.workload.notes,
            },
            "load": {
                "num_prompts": settings.num_prompts,
                "warmup": settings.warmup,
                "max_concurrency": settings.max_concurrency,
                "timeout_s": settings.timeout_s,
            },
            "slo": settings.slo and asdict(settings.slo),
            "calibration": self.calibration and self.calibration.to_json(),
            "summary": self.summary.to_json(),
            "requests": [record.to_json() for record in self.result.records],
        }


async def run_load_bench(
    target: Target,
    recipe: Recipe,
    settings: LoadSettings,
    *,
    on_record: Callable[[RequestRecord, int], None] | None = None,
    stop: asyncio.Event | None = None,
) -> LoadReport:
    """Prepare, calibrate, plan, load and summarise.

    Args:
        on_record: called with each record, and with the number of requests in all.
        stop: see `run_load`.

    Raises:
        LoadError: the server cannot be put under load.
        ConfigError: a workload that cannot be made.
    """
    machine = describe_machine()
    target, corpus = await prepare(target, settings.ask_for)
    workload = plan(
        recipe,
        corpus,
        count=settings.num_prompts + settings.warmup,
        seed=settings.seed,
        request_rate=settings.request_rate,
        burstiness=settings.burstiness,
    )
    calibration = await calibrate() if settings.calibrate else None
    total = len(workload.requests)
    result = await run_load(
        target,
        workload.requests,
        concurrency=_concurrency(settings, workload),
        timeout_s=settings.timeout_s,
        on_record=on_record and (lambda record: on_record(record, total)),
        stop=stop,
    )
    result = result.without_warmup(settings.warmup)
    return LoadReport(
        created_at=now_text(),
        machine=machine,
        target=target,
        tokens_counted_by=corpus.counted_by,
        settings=settings,
        workload=workload,
        calibration=calibration,
        result=result,
        summary=summarise(result, settings.slo),
    )


def _concurrency(settings: LoadSettings, workload: Workload) -> int | None:
    """A closed loop needs a limit; without one it takes one request at a time."""
    return settings.max_concurrency or (None if workload.open_loop else 1)
