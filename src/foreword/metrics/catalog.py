"""Every metric of the server; `/metrics` and the tables of `docs/metrics.md` are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from foreword.metrics.partition import PARTS

PREFIX = "foreword:"

# 0.5 ms … 5 min, three steps a decade: TTFT on a warm cache is a few milliseconds.
SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0),
)
RATIOS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
TOKENS = tuple(float(2**power) for power in range(18))


class Kind(str, Enum):
    """Prometheus' kinds of metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One family of metrics.

    Attributes:
        name: without `PREFIX` and without the ``_total`` that counters end with.
        help: what one value is.
        labels: each label and what its values are; each has few. ``model_name`` comes on top.
        buckets: a histogram's upper edges.
    """

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name that Prometheus knows it by."""
        return PREFIX + self.name + ("_total" if self.kind is Kind.COUNTER else "")


def _counter(name: str, help: str, **labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, help, labels)


def _gauge(name: str, help: str, **labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, help, labels)


def _seconds(name: str, help: str, **labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, help, labels, SECONDS)


def _tokens(name: str, help: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, help, {}, TOKENS)


TTFT = _seconds(
    "time_to_first_token_seconds",
    "Request head read from the socket to first content byte written. Without a stream that is the "
    "first byte of the whole answer.",
    stream="`true`, `false`",
)
TTFT_PART = _seconds(
    "ttft_part_seconds",
    "Time that a request spent in one part of its TTFT; the parts add up to it. A part that a "
    "request did not have is not counted.",
    part=", ".join(f"`{part}`" for part in PARTS),
)
ITL = _seconds("inter_token_latency_seconds", "Between two writes of content in a stream.")
TPOT = _seconds(
    "request_time_per_output_token_seconds",
    "First to last sampled token of a request, over the tokens after the first.",
)
E2E = _seconds("e2e_request_latency_seconds", "Request head read to last content byte written.")
TTFT_PREDICTION_ERROR = Metric(
    "ttft_prediction_error_ratio",
    Kind.HISTOGRAM,
    "How far the prediction of a request's time to first token, made when it was queued, was off, "
    "over the time from then to its first sampled token.",
    buckets=RATIOS,
)
QUEUE = _seconds(
    "request_queue_time_seconds", "Handed to the engine to the start of the first own step."
)
PREFILL = _seconds(
    "request_prefill_time_seconds",
    "Start of the first own step to the first sampled token, gaps between chunks included.",
)
DECODE = _seconds("request_decode_time_seconds", "First to last sampled token of a request.")
PROMPT_LENGTH = _tokens("request_prompt_tokens", "Tokens in a request's prompts.")
GENERATION_LENGTH = _tokens("request_generation_tokens", "Tokens generated for a request.")
COMPLETIONS = _counter(
    "completions", "Completions that ended.", finish_reason="`stop`, `length`, `abort`, `error`"
)
ERRORS = _counter("errors", "Requests answered with an error.", status="the HTTP status")

STEP_DURATION = _seconds("step_duration_seconds", "One step of the engine, planning to results.")
STEP_TOKENS = _tokens("step_tokens", "Tokens computed in one step.")
STEP_PREDICTION_ERROR = Metric(
    "step_time_prediction_error_ratio",
    Kind.HISTOGRAM,
    "How far the scheduler's prediction of a step's time was off, over that time.",
    buckets=RATIOS,
)
RUNNING = _gauge("num_requests_running", "Sequences that run.")
WAITING = _gauge("num_requests_waiting", "Sequences that wait.")
WAITING_TOKENS = _gauge(
    "num_tokens_waiting", "Uncached tokens of sequences that wait, as far as can be told."
)
PROMPT_TOKENS = _counter(
    "prompt_tokens",
    "Tokens of admitted prompts. A hit counts once: what a preempted sequence finds again is none.",
    source="`pool` (their keys and values were there), `memory`, `disk` (a tier below it gave "
    "them; only where there is one), `computed` (all others)",
)
SAVED = _counter(
    "prefix_cache_saved_seconds",
    "Prefill that the prefix cache spared requests, as predicted from measured steps, less their "
    "wait for blocks from other tiers.",
)
GENERATION_TOKENS = _counter("generation_tokens", "Tokens generated.")
COMPUTED_TOKENS = _counter("computed_tokens", "Tokens computed, of prompts and of answers.")
RECOMPUTED_TOKENS = _counter(
    "recomputed_tokens", "Tokens among those that had been computed before a preemption."
)
PREEMPTIONS = _counter("preemptions", "Sequences that had to give up their KV blocks.")
KV_BLOCKS = _gauge(
    "kv_blocks",
    "KV blocks.",
    state="`referenced` (held by sequences), `cached` (known to the prefix cache alone, free to "
    "take), `free` (hold nothing)",
)
KV_USAGE = _gauge("kv_cache_usage_ratio", "Share of the KV blocks that sequences hold.")

GROUPS: Mapping[str, tuple[Metric, ...]] = {
    "Requests": (
        *(TTFT, TTFT_PART, TTFT_PREDICTION_ERROR, ITL, TPOT, E2E, QUEUE, PREFILL, DECODE),
        *(PROMPT_LENGTH, GENERATION_LENGTH, COMPLETIONS, ERRORS),
    ),
    "Engine": (
        *(RUNNING, WAITING, WAITING_TOKENS, STEP_DURATION, STEP_TOKENS, STEP_PREDICTION_ERROR),
        *(PROMPT_TOKENS, GENERATION_TOKENS),
        *(COMPUTED_TOKENS, RECOMPUTED_TOKENS, PREEMPTIONS),
    ),
    "KV cache": (KV_BLOCKS, KV_USAGE, SAVED),
}
