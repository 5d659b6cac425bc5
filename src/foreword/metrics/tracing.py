"""Requests as OpenTelemetry spans, sent by OTLP over HTTP. Needs the extra ``otel``."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from foreword import __version__
from foreword.core.trace import StepLog
from foreword.metrics.record import RequestRecord
from foreword.metrics.waterfall import Stretch, waterfall

_FAREWELL_S = 2.0
_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}


class RequestTracer:
    """Makes a span for each request, as the GenAI semantic conventions name things, and below it
    one for each part of its TTFT.

    Spans are made when a request is over, in a thread of their own: serving costs nothing. The
    header ``traceparent`` puts a request's span below its caller's and says whether it is wanted;
    the SDK's environment variables (``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER``, …) hold.

    Args:
        endpoint: where spans are posted; None: where the SDK's environment variables say.
        steps: the engine's, to say what a request waited for.
    """

    def __init__(self, endpoint: str | None, steps: StepLog) -> None:
        self._steps = steps
        name = os.environ.get("OTEL_SERVICE_NAME", "foreword")
        self._provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self._exporter = OTLPSpanExporter(endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("foreword", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._worker = ThreadPoolExecutor(1, "foreword-spans")

    def written(self, gap_s: float) -> None:
        """Take no notice: a span says when content came first, not each time."""

    def error(self, status: int) -> None:
        """Take no notice: an error before a request has begun has no span."""

    def ended(self, record: RequestRecord) -> None:
        """Make the spans of a request that is over."""
        self._worker.submit(self._make_spans, record)

    def shutdown(self) -> None:
        """Send what has not been sent; give up after some seconds where nobody takes it."""
        self._worker.shutdown()
        sender = threading.Thread(target=self._provider.shutdown)
        sender.start()
        sender.join(_FAREWELL_S)
        if sender.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
            sender.join()

    def _make_spans(self, record: RequestRecord) -> None:
        life = record.lifetime
        assert life.ended_s is not None
        unix_s = record.received_unix_s - life.received_s  # of the monotonic clock's zero
        carrier = {} if record.traceparent is None else {"traceparent": record.traceparent}
        operation = _OPERATIONS[record.endpoint]
        span = self._tracer.start_span(
            f"{operation} {record.model}",
            self._propagator.extract(carrier),
            SpanKind.SERVER,
            _attributes(record, operation),
            start_time=_ns(unix_s + life.received_s),
        )
        if span.is_recording():
            parts = record.parts(life.ended_s)
            below = set_span_in_context(span)
            for part in waterfall(parts, record.trace.request_id, self._steps):
                self._add_part(part, below, unix_s)
        if life.first_written_s is not None:
            span.add_event("first token", timestamp=_ns(unix_s + life.first_written_s))
        if record.status == "failed":
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(unix_s + life.ended_s))

    def _add_part(self, part: Stretch, below: Context, unix_s: float) -> None:
        span = self._tracer.start_span(
            part.name,
            below,
            attributes=_part_attributes(part),
            start_time=_ns(unix_s + part.began_s),
        )
        span.end(_ns(unix_s + part.ended_s))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _attributes(record: RequestRecord, operation: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "foreword",
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": record.finish_reasons,
        "gen_ai.usage.input_tokens": record.usage.prompt,
        "gen_ai.usage.cache_read.input_tokens": record.usage.cached,
        "gen_ai.usage.output_tokens": record.usage.generated,
    }
    if record.ttft_s is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = record.ttft_s
    if record.status == "failed":
        attributes["error.type"] = "engine_error"
    return attributes


def _part_attributes(part: Stretch) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if part.cause is not None:
        attributes["foreword.cause"] = part.cause
    if part.tokens_of and part.chunk is None:
        attributes["foreword.behind"] = list(part.tokens_of)
    if part.tokens:
        attributes["foreword.tokens"] = part.tokens
    return attributes
