"""The metrics of the catalog for one server, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from foreword.core.trace import StepRecord
from foreword.metrics import catalog
from foreword.metrics.catalog import PREFIX, Kind, Metric
from foreword.metrics.record import RequestRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Reading(NamedTuple):
    """A number that something else keeps, as it stands now.

    Attributes:
        labels: the values of the metric's labels, in its order.
    """

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


# Fed by the server and the step loop; the catalog's others are read.
_FED = (
    *(catalog.TTFT, catalog.TTFT_PART, catalog.ITL, catalog.TPOT, catalog.E2E),
    *(catalog.TTFT_PREDICTION_ERROR, catalog.QUEUE, catalog.PREFILL, catalog.DECODE),
    *(catalog.PROMPT_LENGTH, catalog.GENERATION_LENGTH, catalog.COMPLETIONS, catalog.ERRORS),
    *(catalog.STEP_DURATION, catalog.STEP_TOKENS, catalog.STEP_PREDICTION_ERROR, catalog.SAVED),
)


class ServingMetrics:
    """Counters and histograms that are fed as things happen, and readings taken when scraped.

    Args:
        model_name: the label that every sample carries.
        readings: called at each scrape for the engine's own numbers.
    """

    def __init__(self, model_name: str, readings: Callable[[], Iterable[Reading]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Readings(model_name, readings))
        ProcessCollector(registry=self._registry)
        self._series = _Series(model_name, self._registry)

    def error(self, status: int) -> None:
        """Count a request that was answered with an error."""
        self._series.of(catalog.ERRORS, str(status)).inc()

    def written(self, gap_s: float) -> None:
        """Record the time between two writes of a stream."""
        self._series.of(catalog.ITL).observe(gap_s)

    def ended(self, record: RequestRecord) -> None:
        """Count a request that is over; what did not happen to it is left out."""
        series = self._series
        series.of(catalog.SAVED).inc(record.saved_s)
        for reason in record.finish_reasons:
            series.of(catalog.COMPLETIONS, reason).inc()
        if record.ttft_s is not None:
            series.of(catalog.TTFT, str(record.stream).lower()).observe(record.ttft_s)
            for part, seconds in record.parts_s.items():
                series.of(catalog.TTFT_PART, part).observe(seconds)
        for metric, value in _once_a_request(record):
            if value is not None:
                series.of(metric).observe(value)

    def stepped(self, step: StepRecord) -> None:
        """Record a step of the engine that is over. Called in the step loop's thread."""
        assert step.applied_s is not None
        self._series.of(catalog.STEP_DURATION).observe(step.applied_s - step.planned_s)
        self._series.of(catalog.STEP_TOKENS).observe(step.num_tokens)
        self._series.of(catalog.STEP_PREDICTION_ERROR).observe(step.prediction_error)

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)


def _once_a_request(record: RequestRecord) -> Iterator[tuple[Metric, float | None]]:
    """Yield what a request has at most one of; None: it did not come to that."""
    trace = record.trace
    first = trace.chunks[0][0] if trace.chunks else None
    sampled, last = trace.first_sampled, trace.last
    yield catalog.PROMPT_LENGTH, record.usage.prompt or None
    yield catalog.GENERATION_LENGTH, record.usage.generated or None
    yield catalog.TPOT, record.tpot_s
    yield catalog.E2E, record.lifetime.e2e_s
    yield catalog.TTFT_PREDICTION_ERROR, trace.forecast_error
    if first is not None and trace.queued_s is not None:
        yield catalog.QUEUE, first.planned_s - trace.queued_s
    if first is not None and sampled is not None and sampled.ended_s is not None:
        yield catalog.PREFILL, sampled.ended_s - first.planned_s
        if last is not None and last.ended_s is not None:
            yield catalog.DECODE, last.ended_s - sampled.ended_s


class _Series:
    """Counters and histograms by metric and label values, each made when it is first asked for.

    Prometheus' own look-up by labels takes longer than counting does.
    """

    def __init__(self, model_name: str, registry: CollectorRegistry) -> None:
        self._model_name = model_name
        self._families = {metric: _family(metric, registry) for metric in _FED}
        self._made: dict[tuple[Metric, tuple[str, ...]], Any] = {}
        for metric in _FED:
            if not metric.labels:
                self.of(metric)  # there from the start, at zero

    def of(self, metric: Metric, *values: str) -> Any:
        """Return the series of a metric with these label values."""
        key = metric, values
        series = self._made.get(key)
        if series is None:
            series = self._families[metric].labels(self._model_name, *values)
            self._made[key] = series
        return series


def _family(metric: Metric, registry: CollectorRegistry) -> Counter | Histogram:
    name, labels = PREFIX + metric.name, ["model_name", *metric.labels]
    if metric.kind is Kind.COUNTER:
        return Counter(name, metric.help, labels, registry=registry)
    return Histogram(name, metric.help, labels, buckets=metric.buckets, registry=registry)


class _Readings(Collector):
    """Asks for the engine's numbers when Prometheus does."""

    def __init__(self, model_name: str, readings: Callable[[], Iterable[Reading]]) -> None:
        self._model_name = model_name
        self._readings = readings

    def describe(self) -> Iterable[Family]:
        """Return nothing: so the engine is not asked before the first scrape."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield the numbers of this moment."""
        for metric, readings in groupby(self._readings(), key=attrgetter("metric")):
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(PREFIX + metric.name, metric.help, labels=["model_name", *metric.labels])
            for reading in readings:
                family.add_metric([self._model_name, *reading.labels], reading.value)
            yield family
