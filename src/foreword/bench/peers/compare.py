"""Several engines on the same prompts, interleaved, and what came out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from foreword import __version__
from foreword.bench.limits import Limits
from foreword.bench.peers.base import Peer, PeerError, PeerSample
from foreword.bench.prompts import PromptSource
from foreword.bench.stats import Summary
from foreword.bench.work import Work
from foreword.errors import ConfigError

SCHEMA = "foreword.bench.peers/1"
OURS = "foreword"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """What every engine is asked for.

    Attributes:
        prompt_lengths: tokens of the prompts.
        output_tokens: tokens of each continuation; 1 measures no decoding.
        repeats: measurements of each length.
        warmup: rounds over all lengths and engines before those, thrown away.

    Raises:
        ConfigError: a value that cannot be measured.
    """

    prompt_lengths: tuple[int, ...] = (128, 512)
    output_tokens: int = 32
    repeats: int = 3
    warmup: int = 1

    def __post_init__(self) -> None:
        if not self.prompt_lengths or min(self.prompt_lengths) < 1:
            raise ConfigError("prompt_lengths", f"must be at least 1: {list(self.prompt_lengths)}")
        for name, least in (("output_tokens", 1), ("repeats", 1), ("warmup", 0)):
            if getattr(self, name) < least:
                raise ConfigError(name, f"must be at least {least}, not {getattr(self, name)}")

    @property
    def max_tokens(self) -> int:
        """The longest sequence."""
        return max(self.prompt_lengths) + self.output_tokens


@dataclass(frozen=True, slots=True)
class EngineResult:
    """All measurements of one engine, by prompt length.

    Attributes:
        error: why it has fewer than asked for; None where it has them all.
    """

    name: str
    version: str
    samples: dict[int, list[PeerSample]] = field(default_factory=dict)
    error: str | None = None

    def ttft_s(self, length: int) -> Summary | None:
        """To the first token of prompts of that length."""
        samples = self.samples.get(length)
        return Summary.of(sample.ttft_s for sample in samples) if samples else None

    def tpot_s(self, length: int) -> Summary | None:
        """For each token after the first."""
        values = [s.tpot_s for s in self.samples.get(length, ()) if s.tpot_s is not None]
        return Summary.of(values) if values else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run over all engines.

    Attributes:
        engines: ours first.
        absent: engines that took no part, and why.
    """

    created_at: str
    model: str
    machine: dict[str, Any]
    limits: Limits
    settings: CompareSettings
    work: Work
    engines: tuple[EngineResult, ...]
    absent: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data, every sample included; ``schema`` names the format."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "model": self.model,
            "machine": self.machine,
            "limits": self.limits.to_json(),
            "settings": asdict(self.settings),
            "engines": [self._engine_to_json(engine) for engine in self.engines],
            "absent": self.absent,
        }

    def _engine_to_json(self, engine: EngineResult) -> dict[str, Any]:
        return {
            "name": engine.name,
            "version": engine.version,
            "error": engine.error,
            "cases": [
                {
                    "prompt_tokens": length,
                    **self.row(engine, length),
                    "samples": [asdict(sample) for sample in samples],
                }
                for length, samples in engine.samples.items()
            ],
        }

    def row(self, engine: EngineResult, length: int) -> dict[str, Any]:
        """Medians of one engine at one length, beside ours and beside the machine's limits.

        ``our_ttft_ratio`` is our time over the engine's (less than 1: we are faster),
        ``our_decode_ratio`` our tokens per second over its (more than 1: we are faster), and
        ``…_of_limit`` is 1 where the machine's limit is reached.
        """
        ours = self.engines[0]
        ttft, tpot = engine.ttft_s(length), engine.tpot_s(length)
        our_ttft, our_tpot = ours.ttft_s(length), ours.tpot_s(length)
        prefill_floor_s = self.work.prefill_floor_s(length, self.limits)
        decode_floor_s = self.work.decode_floor_s(length, self.limits)
        return {
            "ttft_s": ttft and asdict(ttft),
            "our_ttft_ratio": ttft and our_ttft and our_ttft.median / ttft.median,
            "prefill_of_limit": ttft and prefill_floor_s and prefill_floor_s / ttft.median,
            "tpot_s": tpot and asdict(tpot),
            "our_decode_ratio": tpot and our_tpot and tpot.median / our_tpot.median,
            "decode_of_limit": tpot and decode_floor_s and decode_floor_s / tpot.median,
        }


def run_comparison(
    starts: Mapping[str, Callable[[], Peer]],
    prompts: PromptSource,
    settings: CompareSettings,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[EngineResult, ...]:
    """Measure every engine on the same prompts.

    Each prompt goes to one engine after the other, each round beginning with another engine, so
    that a slow spell of the machine falls on all alike; no two prompts begin alike, so that no
    engine finds one in its cache. An engine that fails is left out from there on.

    Args:
        starts: how to start each engine; ours is called `OURS`.

    Raises:
        PeerError: ours failed.
    """
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer] = {}
        results = {name: EngineResult(name, "") for name in starts}
        for name, start in starts.items():
            with _left_out(results, name):
                peers[name] = start()
                stack.callback(peers[name].close)
                results[name] = EngineResult(name, peers[name].version)
        rounds = settings.warmup + settings.repeats
        steps = rounds * len(settings.prompt_lengths)
        for step in range(steps):
            round_, at = divmod(step, len(settings.prompt_lengths))
            length = settings.prompt_lengths[at]
            prompt = prompts.take(length)
            for name in _rotated(list(peers), step):
                if results[name].error is not None:
                    continue
                with _left_out(results, name):
                    sample = peers[name].measure(prompt, settings.output_tokens)
                    if round_ >= settings.warmup:
                        results[name].samples.setdefault(length, []).append(sample)
            if progress is not None:
                progress(step + 1, steps)
    return tuple(results[name] for name in starts)


@contextlib.contextmanager
def _left_out(results: dict[str, EngineResult], name: str) -> Iterator[None]:
    """Note an engine's failure, unless it is ours."""
    try:
        yield
    except PeerError as error:
        if name == OURS:
            raise
        result = results[name]
        results[name] = EngineResult(name, result.version, result.samples, str(error))


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
