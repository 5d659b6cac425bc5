"""Prometheus metrics of one server, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from foreword.metrics.record import RequestRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# 0.5 ms … 5 min, three steps a decade: TTFT on a warm cache is a few milliseconds.
_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0),
)


class Reading(NamedTuple):
    """A number that something else keeps, as it stands now.

    Attributes:
        total: whether it only grows (a counter); else it is a gauge.
    """

    name: str
    help: str
    value: float
    total: bool = False


class ServingMetrics:
    """Counters and histograms that the server feeds, gauges that are read when scraped.

    A request's numbers are added when it ends; the gaps between its writes as they happen.

    Args:
        readings: called at each scrape for the engine's own numbers.
    """

    def __init__(self, model_name: str, readings: Callable[[], Iterable[Reading]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Readings(model_name, readings))
        self._labels = {"model_name": model_name}

        self._completions = self._counter(
            "completions", "Completions by how they ended.", "finish_reason"
        )
        self._errors = self._counter("errors", "Requests answered with an error.", "status")
        self._generated = self._counter("generation_tokens", "Tokens generated.")
        self._ttft = self._histogram(
            "time_to_first_token_seconds",
            "Request read from the socket to first content byte written; "
            "without a stream that is the whole response.",
            "stream",
        )
        self._gap = self._histogram(
            "inter_token_latency_seconds", "Between two writes of content in a stream."
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "Request read to last content byte written."
        )
        self._preparation = self._histogram(
            "request_preparation_seconds", "Request read to handed to the engine."
        )
        self._queue = self._histogram(
            "request_queue_seconds", "Handed to the engine to first part of a step."
        )

    def error(self, status: int) -> None:
        """Count a request that was answered with an error."""
        self._errors.labels(**self._labels, status=str(status)).inc()

    def written(self, gap_s: float) -> None:
        """Record the time between two writes of a stream."""
        self._gap.labels(**self._labels).observe(gap_s)

    def ended(self, record: RequestRecord) -> None:
        """Record a request that is over; what did not happen to it is left out."""
        for reason in record.finish_reasons:
            self._completions.labels(**self._labels, finish_reason=reason).inc()
        self._generated.labels(**self._labels).inc(record.usage.generated)
        life, trace = record.lifetime, record.trace
        if trace.queued_s is not None:
            self._preparation.labels(**self._labels).observe(trace.queued_s - life.received_s)
            if trace.chunks:
                scheduled_s = trace.chunks[0][0].planned_s
                self._queue.labels(**self._labels).observe(scheduled_s - trace.queued_s)
        if life.ttft_s is not None:
            stream = str(record.stream).lower()
            self._ttft.labels(**self._labels, stream=stream).observe(life.ttft_s)
        if life.e2e_s is not None:
            self._e2e.labels(**self._labels).observe(life.e2e_s)

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"foreword:{name}", text, ["model_name", *labels], registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(
            f"foreword:{name}",
            text,
            ["model_name", *labels],
            buckets=_SECONDS,
            registry=self._registry,
        )


class _Readings(Collector):
    """Asks for the engine's numbers when Prometheus does."""

    def __init__(self, model_name: str, readings: Callable[[], Iterable[Reading]]) -> None:
        self._model_name = model_name
        self._readings = readings

    def describe(self) -> Iterable[Metric]:
        """Return nothing: so the engine is not asked before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers of this moment."""
        for reading in self._readings():
            kind = CounterMetricFamily if reading.total else GaugeMetricFamily
            family = kind(f"foreword:{reading.name}", reading.help, labels=["model_name"])
            family.add_metric([self._model_name], reading.value)
            yield family
