"""A profile from what a running server measured of itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import log
from typing import Any

from foreword.bench.stats import percentile
from foreword.core.trace import STEPS_KEPT
from foreword.errors import ServerError
from foreword.sched import CostModel, StepLoad
from foreword.sched.cost import LOAD_FEATURES
from foreword.sim.cost import CostProfile

_LEAST_STEPS = 100
_IDLE_S = 1e-3  # a step that is planned so long after the last one had nothing to wait for
_BEFORE_QUEUE = ("read", "parse", "template", "tokenise", "handover")
_AFTER_STEP = ("detokenise", "deliver", "write")


def fit_server(url: str, get: Callable[[str], Any]) -> CostProfile:
    """Fit the profile of a `foreword serve` that has been under load.

    Steps are fitted by least squares on relative errors, as the scheduler's own cost model does,
    but with the same weight for each of the steps that the server remembers. What is around steps
    is the mean of the last five minutes.

    Args:
        url: for the profile's name.
        get: gives the JSON at a path of the server.

    Raises:
        ServerError: it does not answer, or has computed too little to tell.
    """
    steps = get(f"/v1/steps?last={STEPS_KEPT}")["data"]
    if len(steps) < _LEAST_STEPS:
        raise ServerError(
            f"{url} has computed {len(steps)} steps, of which {_LEAST_STEPS} are needed: "
            "put it under load first (`foreword bench serve`)"
        )
    model = get("/v1/models")["data"][0]
    stats = get("/v1/stats")
    blocks, parts_ms = stats["engine"]["kv_blocks"], stats["window"]["parts_ms"]
    costs, ratios = fit_steps(steps)
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    half, most = percentile(errors, 0.5), percentile(errors, 0.9)
    return CostProfile(
        name=f"{model['id']} at {url}",
        about=f"Fitted to its latest {len(steps)} steps, half of which it gives to within "
        f"{half:.1%}, and nine of ten to within {most:.1%}.",
        context_tokens=model["max_model_len"],
        kv_tokens=blocks["total"] * blocks["block_size"],
        between_steps_s=_between_steps_s(steps),
        request_s=_sum_s(parts_ms, _BEFORE_QUEUE),
        reply_s=_sum_s(parts_ms, _AFTER_STEP),
        noise=statistics.pstdev(map(log, ratios)),
        **costs,
    )


def fit_steps(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], list[float]]:
    """Fit the costs of steps; gives them by their names in a profile.

    Also gives what the steps took over what the costs say, which is 1 on average by time.

    Args:
        steps: as ``/v1/steps`` tells of them.
    """
    model = CostModel(forget=1.0)
    measured = list(_measured(steps))
    for load, seconds in measured:
        model.observe(load, seconds)
    predicted = [model.predict(load) for load, _ in measured]
    scale = sum(seconds for _, seconds in measured) / sum(predicted)
    names = ("step_s", "prompt_token_s", "attention_pair_s", "decode_s", "context_token_s")
    scaled = [coefficient * scale for coefficient in model.coefficients_s]
    ratios = [s / (p * scale) for (_, s), p in zip(measured, predicted, strict=True)]
    return dict(zip(names, scaled, strict=True)), ratios


def _measured(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[StepLoad, float]]:
    for step in steps:
        load = [step["load"][name] for name in LOAD_FEATURES]
        yield StepLoad(*load[1:]), step["ended_s"] - step["began_s"]


def _between_steps_s(steps: Sequence[Mapping[str, Any]]) -> float:
    gaps_s = [
        later["began_s"] - earlier["ended_s"]
        for earlier, later in pairwise(steps)
        if later["planned_s"] - earlier["applied_s"] < _IDLE_S
    ]
    return statistics.median(gaps_s) if gaps_s else 0.0


def _sum_s(parts_ms: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(parts_ms.get(name, 0.0) for name in names) / 1e3
