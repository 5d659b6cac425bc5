"""Spans reach a real OTLP receiver: named as the conventions say, placed where the caller says."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from support.scripted import tiny_engine
from support.waiting import HANG_S, StepGate

from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.errors import BackendError, ConfigError
from foreword.metrics import tracing
from foreword.server.app import create_app

TEXT = "/v1/completions"
TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Receiver:
    """Takes spans by HTTP, as a collector does."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(tracing, "_FAREWELL_S", HANG_S)
    receiver = Receiver()
    yield receiver
    receiver.close()


def ended(server: Any) -> None:
    """End the server, which sends what it has."""
    server.stop()
    server.join()


def attributes(span: Span) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        found = getattr(value, kind)
        return [plain(item) for item in found.values] if kind == "array_value" else found

    return {entry.key: plain(entry.value) for entry in span.attributes}


def test_a_request_is_a_span_with_its_parts_below(launch, receiver):
    server = launch(on_step=lambda plan: time.sleep(0.01), otlp_traces_endpoint=receiver.url)
    began_ns = time.time_ns()
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    answer = server.send("POST", TEXT, {"prompt": "say:abc"}, headers).json()
    ended(server)

    [span] = [span for span in receiver.spans if span.name == "text_completion tiny"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert span.kind == Span.SPAN_KIND_SERVER
    assert began_ns <= span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()
    found = attributes(span)
    ttft_s = found.pop("gen_ai.response.time_to_first_chunk")
    assert found == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "foreword",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": False,
        "gen_ai.response.model": "tiny",
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 4,
    }
    [event] = span.events
    assert event.name == "first token"
    assert event.time_unix_nano - span.start_time_unix_nano == pytest.approx(1e9 * ttft_s, abs=2000)

    parts = [part for part in receiver.spans if part.parent_span_id == span.span_id]
    assert {"parse", "prefill", "write"} <= {part.name for part in parts}
    assert parts[0].start_time_unix_nano == span.start_time_unix_nano
    for part, following in itertools.pairwise(parts):
        assert part.end_time_unix_nano == following.start_time_unix_nano
    assert parts[-1].end_time_unix_nano == event.time_unix_nano


def test_who_was_in_the_way_is_an_attribute(launch, receiver):
    gate = StepGate()
    server = launch(on_step=gate, max_num_seqs=1, otlp_traces_endpoint=receiver.url)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.post, TEXT, {"prompt": "x" * 600, "max_tokens": 4})
        server.wait_for(lambda: server.engine.stats().num_running == 1)
        second = pool.submit(server.post, TEXT, {"prompt": "say:b", "max_tokens": 1})
        server.wait_for(lambda: server.engine.stats().num_waiting == 1)
        gate.open()
        assert first.result().status == second.result().status == 200
    ended(server)
    waits = [span for span in receiver.spans if span.name == "queue"]
    blamed = [attributes(span).get("foreword.behind") for span in waits]
    causes = {attributes(span).get("foreword.cause") for span in waits}
    ids = [attributes(span)["gen_ai.response.id"] for span in receiver.spans if span.kind == 2]
    assert any(who and who[0] in ids for who in blamed)
    assert "sequences" in causes


def test_the_usual_variables_turn_it_on(launch, receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.removesuffix("/v1/traces"))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "the-one")
    server = launch()
    assert server.post(TEXT, {"prompt": "say:a"}).status == 200
    ended(server)
    assert receiver.spans
    resource = receiver.requests[0].resource_spans[0].resource
    named = {entry.key: entry.value.string_value for entry in resource.attributes}
    assert named["service.name"] == "the-one"


def test_a_missing_extra_is_told_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "foreword.metrics.tracing", None)
    config = ServerConfig(otlp_traces_endpoint="http://127.0.0.1:4318/v1/traces")
    with pytest.raises(ConfigError, match=r"pip install 'foreword\[otel\]'"):
        create_app(AsyncEngine(tiny_engine()), config)


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:4318", "file:///etc/passwd"])
def test_an_endpoint_that_cannot_be_is_refused(endpoint):
    with pytest.raises(ConfigError, match="must be an http address"):
        ServerConfig(otlp_traces_endpoint=endpoint)


def test_a_caller_who_does_not_record_is_obeyed(launch, receiver):
    server = launch(otlp_traces_endpoint=receiver.url)
    unwanted = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}
    server.send("POST", TEXT, {"prompt": "say:a"}, unwanted)
    broken = {"traceparent": "00-<script>"}
    server.send(
        "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "say:a"}]}, broken
    )
    ended(server)
    [root] = [span for span in receiver.spans if not span.parent_span_id]
    assert root.name == "chat tiny"
    assert all(span.trace_id == root.trace_id for span in receiver.spans)


def test_a_failed_request_says_so(launch, receiver):
    def fail(plan: Any) -> None:
        raise BackendError("the step failed")

    server = launch(on_step=fail, otlp_traces_endpoint=receiver.url)
    assert server.post(TEXT, {"prompt": "say:a"}).status == 500
    ended(server)
    [root] = [span for span in receiver.spans if not span.parent_span_id]
    assert root.status.code == Status.STATUS_CODE_ERROR
    assert attributes(root)["error.type"] == "engine_error"
    assert not root.events


def test_nobody_listening_holds_nobody_up(launch, receiver, monkeypatch):
    monkeypatch.setattr(tracing, "_FAREWELL_S", 0.1)
    receiver.close()
    server = launch(otlp_traces_endpoint=receiver.url)
    assert server.post(TEXT, {"prompt": "say:a"}).status == 200
    began = time.monotonic()
    ended(server)
    assert time.monotonic() - began < 5  # 0.3 s; left to itself, the exporter goes on for longer
