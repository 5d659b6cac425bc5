"""A whole A/B run: sides started, prompts made, blocks run, quality compared, report made."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvloop

from foreword.bench.ab.arms import Arm, RunningArm, running
from foreword.bench.ab.blocks import Side
from foreword.bench.ab.effect import import_stats
from foreword.bench.ab.metrics import Goodput, find_metric
from foreword.bench.ab.quality import arithmetic, compare_quality
from foreword.bench.ab.report import AbReport
from foreword.bench.ab.run import AbRunner, Lane, Measured
from foreword.bench.ab.settings import AbSettings
from foreword.bench.load.corpus import Corpus
from foreword.bench.load.plan import Workload
from foreword.bench.load.prepare import prepare_corpus, prepare_target
from foreword.bench.load.summary import Slo
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Recipe, plan
from foreword.config.engine import EngineOptions
from foreword.errors import ConfigError

_SIDES: tuple[Side, Side] = ("a", "b")

# Answers of equal length, and evidence.
_ASK_FOR = ("ignore_eos", "timing")
_BY_BLOCK = ("seed", "salt")

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how much of how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """What is asked of both sides, and how.

    Attributes:
        request_rate, burstiness: see `plan`.
        max_concurrency: None: one, or as many as are due where requests have times of their own.
        slo: for goodput; None: not measured.
    """

    recipe: Recipe
    endpoint: str = "chat"
    request_rate: float | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    slo: Slo | None = None

    def block(self, corpus: Corpus, settings: AbSettings, number: int, salt: str) -> Workload:
        """Plan a block: the warm-up, and what is measured.

        Raises:
            ConfigError: the workload has not so many requests.
        """
        count = settings.warmup + settings.requests
        planned = plan(
            self.recipe,
            corpus,
            count=count,
            seed=f"{settings.seed}/{number}",
            salt=salt,
            request_rate=self.request_rate,
            burstiness=self.burstiness,
        )
        if len(planned.requests) < count:
            raise ConfigError(
                "requests",
                f"the workload has {len(planned.requests)}; a block and its warm-up take {count}",
            )
        return planned


def run_ab(
    arms: Mapping[Side, Arm],
    load: LoadShape,
    settings: AbSettings,
    *,
    api_key: str | None = None,
    compare_answers: bool = True,
    progress: Progress = lambda *_: None,
) -> AbReport:
    """Measure both sides. The first Ctrl-C ends it and keeps what is there; a second one raises.

    Args:
        compare_answers: look at the quality where the sides compute differently.

    Raises:
        ServedProcessError, LoadError, AbError: a side cannot be measured.
        ForewordError: scipy is not installed.
        ConfigError: an option has a value that cannot work.
    """
    import_stats()  # before a run is made for nothing
    if load.slo is None and isinstance(find_metric(settings.primary), Goodput):
        raise ConfigError("primary", "goodput needs --slo-ttft-ms or --slo-tpot-ms")
    engines = _unlike_engines(arms) if compare_answers else None
    progress("starting both sides", 0, 1)
    with running(arms) as sides:
        measuring = _measure(sides, load, settings, api_key, progress)
        measured, workload, notes = uvloop.run(measuring)
    quality = None
    if engines is not None and measured.ended is None:
        try:
            quality = compare_quality(*engines, partial(progress, "comparing quality"))
        except ConfigError as error:
            notes.append(f"the quality could not be compared: {error}.")
    elif compare_answers and any(arm.engine is None for arm in arms.values()):
        notes.append("the quality was not compared: only options of `foreword serve` allow it.")
    return AbReport.make(
        measured,
        settings,
        sides={side: arm.text for side, arm in arms.items()},
        workload=workload,
        quality=quality,
        notes=notes,
    )


async def _measure(
    sides: Mapping[Side, RunningArm],
    load: LoadShape,
    settings: AbSettings,
    api_key: str | None,
    progress: Progress,
) -> tuple[Measured, dict[str, Any], list[str]]:
    targets: dict[Side, Target] = {}
    for side in _SIDES:
        target = Target(url=sides[side].url, endpoint=load.endpoint, api_key=api_key)
        targets[side] = await prepare_target(target, _ASK_FOR)
    corpus = await prepare_corpus(targets["a"])
    blocks = AbRunner.num_blocks(settings)
    done = 0

    def on_block() -> None:
        nonlocal done
        done += 1
        progress("measuring blocks", done, blocks)

    example = load.block(corpus, settings, 0, "")
    timed = any(request.intended_s is not None for request in example.requests)
    concurrency = load.max_concurrency or (None if timed else 1)
    progress("measuring blocks", 0, blocks)
    with _interruptible() as stop:
        runner = AbRunner(
            {side: _lane(sides[side], targets[side], settings.restart) for side in _SIDES},
            lambda number, salt: load.block(corpus, settings, number, salt).requests,
            settings,
            concurrency=concurrency,
            is_good=None if load.slo is None else load.slo.kept_by,
            on_block=on_block,
            stop=stop,
        )
        measured = await runner.run()
    workload = {
        "name": example.name,
        "endpoint": load.endpoint,
        "max_concurrency": concurrency,
        "prompt_tokens_by": corpus.counted_by,
        **{name: value for name, value in example.settings.items() if name not in _BY_BLOCK},
    }
    return measured, workload, list(example.notes)


def _lane(side: RunningArm, target: Target, restart: bool | None) -> Lane:
    process = side.process if side.restarts(restart) else None
    return Lane(target, side.cpu_s, None if process is None else process.restart)


@contextlib.contextmanager
def _interruptible() -> Iterator[asyncio.Event]:
    """Turn the first SIGINT or SIGTERM into an event."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end() -> None:
        stop.set()
        restore()

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield stop
    finally:
        restore()


def _unlike_engines(arms: Mapping[Side, Arm]) -> tuple[EngineOptions, EngineOptions] | None:
    """Both sides' options, where they are ours and say that predictions differ."""
    a, b = arms["a"].engine, arms["b"].engine
    return (a, b) if a and b and arithmetic(a) != arithmetic(b) else None
