"""Whether two configurations that compute differently predict equally well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foreword.backends.cpu.backend import resolve_isa
from foreword.bench.divergence import Divergence
from foreword.bench.eval import EvalSettings, Subject, run_eval
from foreword.bench.prompts import corpus_text
from foreword.config.engine import EngineOptions, choose_compute, choose_kv_cache_dtype
from foreword.engine.build import build_engine

SETTINGS = EvalSettings(windows=2, window_tokens=512)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a configuration may cost beside float32; the project's own gate (docs/quality.md)."""

    kl: float = 0.003
    perplexity_change: float = 0.005
    same_top_share: float = 0.966


@dataclass(frozen=True, slots=True)
class Quality:
    """Both sides' predictions beside those of side a's model in float32.

    Attributes:
        a, b: see `foreword eval`.
    """

    a: Divergence
    b: Divergence
    bounds: Bounds = Bounds()

    @property
    def same(self) -> bool:
        """Whether side b keeps the bounds, or does no worse than side a."""
        a, b, bounds = self.a, self.b, self.bounds
        return (
            b.mean_kl <= max(bounds.kl, a.mean_kl)
            and b.perplexity_change <= max(bounds.perplexity_change, a.perplexity_change)
            and b.same_top_share >= min(bounds.same_top_share, a.same_top_share)
        )

    def to_json(self) -> dict[str, Any]:
        """Give the comparison as plain data."""
        return {
            "reference": "side a's model in float32",
            "same": self.same,
            "a": self.a.to_json(),
            "b": self.b.to_json(),
        }


def arithmetic(options: EngineOptions) -> tuple[str, str, str]:
    """Model, arithmetic and type of keys and values: what predictions depend on.

    Raises:
        ConfigError, BackendError: an option has a value that cannot work.
    """
    compute = str(choose_compute(options, resolve_isa(options.isa)).value)
    return options.model, compute, str(choose_kv_cache_dtype(options, compute).value)


def compare_quality(
    a: EngineOptions, b: EngineOptions, progress: Callable[[int, int], None] | None = None
) -> Quality:
    """Compare both, which must differ, with float32 on the built-in text.

    Args:
        progress: called with tokens done and tokens in all.

    Raises:
        ConfigError: the models have different vocabularies.
        ModelNotFoundError, ModelFileError, UnsupportedModelError, BackendError: see `LLM`.
    """
    exact = replace(a, compute="float32", kv_cache_dtype="float32")
    unlike = [options for options in (a, b) if arithmetic(options) != arithmetic(exact)]
    each = SETTINGS.windows * (SETTINGS.window_tokens - 1)

    def show(before: int) -> Callable[[int, int], None]:
        return lambda done, _: progress(before + done, len(unlike) * each) if progress else None

    found = [_diverge(exact, options, show(i * each)) for i, options in enumerate(unlike)]
    if len(found) == 1:
        found.insert(0 if unlike[0] is b else 1, _itself(found[0]))
    of_a, of_b = found
    return Quality(of_a, of_b)


def _itself(other: Divergence) -> Divergence:
    """What ``other``'s reference is beside itself."""
    nll = other.reference_nll
    return Divergence(nll, nll, np.zeros_like(nll), np.ones(len(nll), np.bool_))


def _diverge(
    exact: EngineOptions, candidate: EngineOptions, progress: Callable[[int, int], None]
) -> Divergence:
    """Run `foreword eval`'s comparison on engines that hold one window and never step."""
    first, second = (
        build_engine(
            EngineOptions(
                model=options.model,
                compute=options.compute,
                kv_cache_dtype=options.kv_cache_dtype,
                isa=options.isa,
                num_threads=options.num_threads,
                num_blocks=SETTINGS.num_blocks,
            )
        )
        for options in (exact, candidate)
    )
    return run_eval(
        Subject.of(first.backend, {}),
        Subject.of(second.backend, {}),
        SETTINGS.cut_text(first.tokenizer, corpus_text()),
        SETTINGS,
        model=exact.model,
        text="pydoc_data.topics",
        progress=progress,
    ).result
