"""A workload on simulated hardware, under one scheduling policy or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import chain
from sys import maxsize

from foreword.bench.load.corpus import Corpus
from foreword.bench.load.record import LoadResult, RequestRecord
from foreword.bench.load.run import no_garbage_collection
from foreword.bench.load.summary import Slo, summarise
from foreword.bench.load.workloads import Recipe, draw_requests
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import Choice, EngineConfig, EngineOptions, resolve
from foreword.errors import ConfigError
from foreword.sim.cost import CostProfile
from foreword.sim.replica import ANSWER_TOKEN, VOCAB_SIZE, Replica
from foreword.sim.report import PolicyReport, ReplicaReport, SimReport
from foreword.sim.router import ROUTERS
from foreword.sim.run import Simulation
from foreword.sim.settings import SimSettings

_DEFAULT_ADMISSION = AdmissionConfig()

Told = Callable[[str, RequestRecord], None]
"""Called when a request is over, with the policy under which it ran."""


def simulate(
    recipe: Recipe,
    settings: SimSettings,
    options: EngineOptions,
    profile: CostProfile,
    *,
    policies: Sequence[str],
    admission: AdmissionConfig = _DEFAULT_ADMISSION,
    slo: Slo | None = None,
    on_record: Told | None = None,
) -> SimReport:
    """Run a workload in virtual time, the same requests under each policy.

    Args:
        options: of the engines; what model and machine would decide, the profile does.
        admission: what may queue; nobody is ended for waiting too long.
        slo: for goodput.

    Raises:
        ConfigError: a policy, workload or option that cannot work.
    """
    configs = [engine_config(replace(options, scheduling_policy=p), profile) for p in policies]
    if not configs:
        raise ConfigError("scheduling_policy", "name at least one")
    reports = []
    for config in configs:
        replicas = [
            Replica(number, config, admission, profile, settings.noise_seed)
            for number in range(settings.replicas)
        ]
        reports.append(_run(recipe, settings, replicas, profile.reply_s, slo, on_record))
    return SimReport(
        profile=profile,
        workload=recipe.name,
        workload_settings=asdict(recipe),
        notes=recipe.notes(),
        settings=settings,
        slo=slo,
        admission=admission,
        config=configs[0],
        policies=reports,
    )


def engine_config(options: EngineOptions, profile: CostProfile) -> EngineConfig:
    """Resolve options as a server would on the profile's hardware.

    Raises:
        ConfigError: an option has a value that cannot work there.
    """
    if options.num_blocks is None and options.block_size > 0:
        options = replace(options, num_blocks=max(1, profile.kv_tokens // options.block_size))
    return resolve(
        options,
        context_length=profile.context_tokens,
        block_bytes=1,  # of no account: the number of blocks is known
        free_memory_bytes=maxsize,
        kv_cache_dtype=Choice("kv_cache_dtype", "float16", "of no account"),
    )


def _corpus() -> Corpus:
    """A text of as many different words as there are tokens for prompts."""
    token_ids = [token_id for token_id in range(VOCAB_SIZE) if token_id != ANSWER_TOKEN]
    return Corpus([" w"] * len(token_ids), token_ids=token_ids, counted_by="the plan")


def _run(
    recipe: Recipe,
    settings: SimSettings,
    replicas: Sequence[Replica],
    reply_s: float,
    slo: Slo | None,
    on_record: Told | None,
) -> PolicyReport:
    policy = replicas[0].engine.config.scheduler.scheduling_policy
    simulation = Simulation(
        replicas,
        ROUTERS[settings.router](replicas),
        reply_s=reply_s,
        on_record=on_record and (lambda record: on_record(policy, record)),
    )
    requests = draw_requests(
        recipe,
        _corpus(),
        count=settings.num_prompts,
        seed=settings.seed,
        request_rate=settings.request_rate,
        burstiness=settings.burstiness,
    )
    with no_garbage_collection():
        simulation.run(requests, settings.max_concurrency)
    result = _result(chain.from_iterable(simulation.records), simulation.ended_s)
    return PolicyReport(
        policy=policy,
        duration_s=simulation.ended_s,
        result=result,
        summary=summarise(result, slo),
        replicas=[
            ReplicaReport(
                result=_result(simulation.records[replica.number], simulation.ended_s),
                totals=replica.engine.stats().totals,
                busy_s=replica.busy_s,
                points=simulation.curves[replica.number].points,
            )
            for replica in replicas
        ],
    )


def _result(records: Iterable[RequestRecord], ended_s: float) -> LoadResult:
    return LoadResult(tuple(sorted(records, key=lambda record: record.index)), 0.0, ended_s)
