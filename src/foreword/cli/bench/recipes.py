"""Workloads by the names and words of the command line."""

from __future__ import annotations

from collections.abc import Iterable

from foreword.bench.load.trace import Trace
from foreword.bench.load.workloads import RECIPES, Recipe
from foreword.cli.overrides import parse_overrides
from foreword.errors import ConfigError


def make_recipe(workload: str, words: Iterable[str]) -> Recipe:
    """Make a workload from its name and ``name=value`` settings.

    Raises:
        ConfigError: no such workload or setting, or a value that cannot work.
    """
    name, _, path = workload.partition(":")
    if name == Trace.name:
        if not path:
            raise ConfigError("workload", "which file? trace:FILE")
        return Trace(path=path, **parse_overrides(words, Trace))
    if workload not in RECIPES:
        names = ", ".join([*RECIPES, "trace:FILE"])
        raise ConfigError("workload", f"{workload!r} is none of {names}")
    recipe = RECIPES[workload]
    return recipe(**parse_overrides(words, recipe))
