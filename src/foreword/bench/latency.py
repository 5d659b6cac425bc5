"""TTFT, TPOT and token rates of one request at a time, by prompt length and output length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from foreword import __version__
from foreword.bench.machine import describe_machine, now_text
from foreword.bench.prompts import PromptSource, corpus_text
from foreword.bench.stats import Summary
from foreword.core.params import SamplingParams
from foreword.engine.outputs import RequestDelta
from foreword.errors import ConfigError, ForewordError

if TYPE_CHECKING:
    from foreword.engine.llm import LLM

SCHEMA = "foreword.bench.latency/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """What to measure: every prompt length with every output length.

    Attributes:
        prompt_lengths: tokens of the prompts.
        output_lengths: tokens to generate; 1 measures no decoding.
        repeats: measurements of each case.
        warmup: rounds over all cases before those, thrown away.

    Raises:
        ConfigError: a value that cannot be measured.
    """

    prompt_lengths: tuple[int, ...] = (32, 128, 512)
    output_lengths: tuple[int, ...] = (64,)
    repeats: int = 5
    warmup: int = 1

    def __post_init__(self) -> None:
        for name in ("prompt_lengths", "output_lengths"):
            lengths = getattr(self, name)
            if not lengths or min(lengths) < 1:
                raise ConfigError(name, f"must be lengths of at least 1, not {list(lengths)}")
        if self.repeats < 1:
            raise ConfigError("repeats", f"must be at least 1, not {self.repeats}")
        if self.warmup < 0:
            raise ConfigError("warmup", f"must not be negative, not {self.warmup}")

    @property
    def cases(self) -> list[tuple[int, int]]:
        """``(prompt tokens, output tokens)``, each pair once."""
        return [(p, o) for p in self.prompt_lengths for o in self.output_lengths]


@dataclass(frozen=True, slots=True)
class LatencySample:
    """One request.

    Attributes:
        ttft_s: from the call to the first tokens.
        decode_s: from the first tokens to the last.
        first_tokens: how many came at once with the first (more than one where a character is
            spread over tokens).
        cached_tokens: prompt tokens that the prefix cache had.
    """

    prompt_tokens: int
    output_tokens: int
    ttft_s: float
    decode_s: float
    first_tokens: int = 1
    cached_tokens: int = 0

    @property
    def prefill_tok_s(self) -> float:
        """Prompt tokens in the time to the first token."""
        return self.prompt_tokens / self.ttft_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there is none."""
        later = self.output_tokens - self.first_tokens
        return self.decode_s / later if later > 0 else None


@dataclass(frozen=True, slots=True)
class LatencyCase:
    """All measurements of one pair of lengths."""

    prompt_tokens: int
    output_tokens: int
    samples: tuple[LatencySample, ...]

    @property
    def ttft_ms(self) -> Summary:
        """Milliseconds to the first token."""
        return Summary.of(sample.ttft_s * 1e3 for sample in self.samples)

    @property
    def prefill_tok_s(self) -> Summary:
        """Prompt tokens per second of TTFT."""
        return Summary.of(sample.prefill_tok_s for sample in self.samples)

    @property
    def tpot_ms(self) -> Summary | None:
        """Milliseconds per output token after the first; None where nothing was decoded."""
        values = [sample.tpot_s * 1e3 for sample in self.samples if sample.tpot_s is not None]
        return Summary.of(values) if values else None

    @property
    def decode_tok_s(self) -> Summary | None:
        """Output tokens per second after the first; None where nothing was decoded."""
        values = [1 / sample.tpot_s for sample in self.samples if sample.tpot_s]
        return Summary.of(values) if values else None

    @property
    def cached_tokens(self) -> int:
        """The most prompt tokens that the prefix cache had; above 0, TTFT flatters."""
        return max(sample.cached_tokens for sample in self.samples)


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """What was measured, on what, and how.

    Attributes:
        engine: model, resolved settings and what the backend says of itself.
    """

    created_at: str
    machine: dict[str, Any]
    engine: dict[str, Any]
    settings: LatencySettings
    cases: tuple[LatencyCase, ...]

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data, every sample included; ``schema`` names the format."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "machine": self.machine,
            "engine": self.engine,
            "settings": asdict(self.settings),
            "cases": [_case_to_json(case) for case in self.cases],
        }


class Streams(Protocol):
    """What is measured: `LLM`, or something that streams as it does."""

    def stream(
        self, prompt_token_ids: Sequence[int], sampling_params: SamplingParams | None = None
    ) -> Iterator[RequestDelta]:
        """Continue one prompt and yield what each step brings."""
        ...


def run_latency(
    llm: LLM, settings: LatencySettings, *, progress: Callable[[int, int], None] | None = None
) -> LatencyReport:
    """Measure a loaded model.

    Args:
        progress: called with requests done and requests in all.

    Raises:
        ConfigError: a case does not fit the context.
        BackendError: a step failed.
    """
    limit = llm.engine.max_model_len
    for prompt_tokens, output_tokens in settings.cases:
        if prompt_tokens + output_tokens > limit:
            raise ConfigError(
                "prompt_lengths",
                f"{prompt_tokens} and {output_tokens} of output exceed the context of {limit}",
            )
    machine = describe_machine()
    prompts = PromptSource(llm.tokenizer.encode(corpus_text(), add_bos=False))
    return LatencyReport(
        created_at=now_text(),
        machine=machine,
        engine={
            "model": llm.engine.model_name,
            "settings": {choice.name: choice.value for choice in llm.config.choices},
            "backend": llm.engine.backend.describe(),
        },
        settings=settings,
        cases=measure_cases(llm, prompts, settings, progress=progress),
    )


def measure_cases(
    llm: Streams,
    prompts: PromptSource,
    settings: LatencySettings,
    *,
    progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[LatencyCase, ...]:
    """Measure every case ``repeats`` times.

    Rounds go over all cases, so that a slow spell of the machine falls on all of them alike.
    """
    samples: dict[tuple[int, int], list[LatencySample]] = {case: [] for case in settings.cases}
    rounds = settings.warmup + settings.repeats
    for round_ in range(rounds):
        for number, (case, kept) in enumerate(samples.items()):
            sample = measure(llm, prompts.take(case[0]), case[1], clock=clock)
            if round_ >= settings.warmup:
                kept.append(sample)
            if progress is not None:
                progress(round_ * len(samples) + number + 1, rounds * len(samples))
    return tuple(LatencyCase(*case, tuple(kept)) for case, kept in samples.items())


def measure(
    llm: Streams,
    prompt_token_ids: Sequence[int],
    output_tokens: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> LatencySample:
    """Time one greedy completion of exactly ``output_tokens`` tokens.

    Raises:
        ForewordError: it came out shorter.
    """
    params = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
    arrivals: list[tuple[float, int]] = []
    cached_tokens = 0
    began_s = clock()
    for delta in llm.stream(prompt_token_ids, params):
        now_s = clock()
        cached_tokens = delta.num_cached_tokens
        count = sum(len(completion.token_ids) for completion in delta.completions)
        if count:
            arrivals.append((now_s, count))
    produced = sum(count for _, count in arrivals)
    if produced != output_tokens:
        raise ForewordError(f"the engine made {produced} tokens of {output_tokens}")
    (first_s, first_tokens), (last_s, _) = arrivals[0], arrivals[-1]
    return LatencySample(
        prompt_tokens=len(prompt_token_ids),
        output_tokens=output_tokens,
        ttft_s=first_s - began_s,
        decode_s=last_s - first_s,
        first_tokens=first_tokens,
        cached_tokens=cached_tokens,
    )


def _case_to_json(case: LatencyCase) -> dict[str, Any]:
    summaries = {
        "ttft_ms": case.ttft_ms,
        "tpot_ms": case.tpot_ms,
        "prefill_tok_s": case.prefill_tok_s,
        "decode_tok_s": case.decode_tok_s,
    }
    return {
        "prompt_tokens": case.prompt_tokens,
        "output_tokens": case.output_tokens,
        "cached_tokens": case.cached_tokens,
        **{name: summary and asdict(summary) for name, summary in summaries.items()},
        "samples": [asdict(sample) for sample in case.samples],
    }
