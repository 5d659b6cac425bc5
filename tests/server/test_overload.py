"""More requests than can be served in time: refused at once, with the truth about when to come."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import openai
import pytest
from support.waiting import HANG_S, StepGate

from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.record import ErrorKind
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target
from foreword.server import event_stream

TEXT = "/v1/completions"


@pytest.fixture
def gate():
    gate = StepGate()
    yield gate
    gate.open()


class Asking:
    """A request in a thread of its own."""

    def __init__(self, server: Any, **body: Any) -> None:
        self.reply: Any = None
        before = len(server.engine._streams)
        self._thread = threading.Thread(target=self._run, args=(server, body))
        self._thread.start()
        server.wait_for(lambda: len(server.engine._streams) > before or self.reply is not None)

    def _run(self, server: Any, body: dict[str, Any]) -> None:
        self.reply = server.post(TEXT, body)

    def join(self) -> Any:
        self._thread.join(HANG_S)
        return self.reply


def occupy(server: Any, count: int = 1) -> list[Asking]:
    """Have the gate hold a step of one request, and others wait behind it."""
    asking = [Asking(server, prompt="say:0", ttft_slo_ms=60_000.0)]
    server.wait_for(lambda: server.engine.steps.next_number > 0)
    asking += [Asking(server, prompt=f"say:{n}", ttft_slo_ms=60_000.0) for n in range(1, count)]
    return asking


@pytest.mark.parametrize("stream", [False, True])
def test_what_would_come_too_late_is_refused_while_a_step_runs(launch, gate, stream):
    server = launch(on_step=gate, ttft_slo_ms=100.0)
    [running] = occupy(server)
    reply = server.post(TEXT, {"prompt": "x" * 1000, "stream": stream})  # by belief, half a second
    assert (reply.status, reply.headers["content-type"]) == (429, "application/json")
    assert (reply.error["type"], reply.error["code"]) == ("rate_limit_error", "overloaded")
    assert "over its ttft_slo_ms of 100" in reply.error["message"]
    assert "retry-after" not in reply.headers  # alone it would come too late, too
    assert running.reply is None  # all that time the step went on
    assert server.get("/v1/requests").json()["data"][0]["status"] == "running"  # no trace of it
    gate.open()
    assert running.join().status == 200
    assert server.get("/v1/stats").json()["window"]["errors"] == {"429": 1}


def test_a_full_queue_is_alive_and_not_ready(launch, gate):
    """P185."""
    server = launch(on_step=gate, max_queue_requests=2)
    running = occupy(server, 3)
    with pytest.raises(openai.RateLimitError) as caught:
        server.client().completions.create(model="tiny", prompt="x")
    assert "the queue is full: 2 waiting, with 10 tokens to compute" in str(caught.value)
    assert caught.value.response.headers["retry-after"] == "1"
    assert [server.get(path).status for path in ("/livez", "/readyz")] == [200, 503]
    assert server.get("/v1/stats").json()["engine"]["waiting_tokens"] == 2 * len("say:1")
    gate.open()
    assert [each.join().status for each in running] == [200] * 3
    assert server.get("/readyz").status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_too_long_is_told(launch, gate, stream):
    server = launch(on_step=gate, queue_timeout_s=1.0)
    [running] = occupy(server)
    waiting = Asking(server, prompt="too late", stream=stream)
    reply = waiting.join()
    assert (reply.status, reply.error["code"]) == (503, "queue_timeout")
    assert "waited 1 s" in reply.error["message"]
    assert int(reply.headers["retry-after"]) >= 1
    gate.open()
    assert running.join().status == 200  # its first step began in time, and took longer
    server.wait_for(lambda: server.idle)
    assert server.engine.stats().totals.prompt_tokens == len("say:0")
    late, served = server.get("/v1/requests").json()["data"]
    assert (late["status"], served["status"]) == ("failed", "finished")


def test_who_waits_too_long_is_told_in_a_stream_that_has_begun(launch, gate, monkeypatch):
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.02)
    server = launch(on_step=gate, queue_timeout_s=1.0)
    occupy(server)
    reply = Asking(server, prompt="too late", stream=True).join()
    assert reply.status == 200
    assert reply.body.startswith(b": still working")
    assert b'"code":"queue_timeout"' in reply.body.rpartition(b"data: ")[2]


@pytest.mark.parametrize("stream", [False, True])
def test_answers_carry_what_was_predicted(launch, stream):
    server = launch(on_step=lambda plan: time.sleep(0.002))
    body = {"prompt": "say:ok", "stream": stream, "timing": True}
    headers = [server.post(TEXT, body).headers for _ in range(20)]
    assert all(float(each["x-predicted-ttft-ms"]) > 0 for each in headers)
    found = server.get("/v1/requests").json()["data"][0]
    assert float(headers[-1]["x-predicted-ttft-ms"]) == pytest.approx(
        found["predicted_ttft_ms"], abs=0.06
    )
    errors = server.get("/v1/stats").json()["window"]["ttft_prediction_error"]
    assert 0 < errors["p50"] <= errors["max"]
    count = b'foreword:ttft_prediction_error_ratio_count{model_name="tiny"} 20.0'
    server.wait_for(lambda: count in server.get("/metrics").body)


def test_bodies_have_a_limit_together(launch, gate):
    """P059."""
    server = launch(on_step=gate, max_body_bytes=1000, max_held_body_bytes=2000)
    large = {"prompt": "say:ok" + "\n" * 400}
    held = [Asking(server, **large) for _ in range(2)]
    reply = server.post(TEXT, large)
    assert (reply.status, reply.error["code"]) == (429, "overloaded")
    assert reply.headers["retry-after"] == "1"
    assert server.post("/v1/models", None).status == 405  # nothing else is refused
    gate.open()
    assert [each.join().status for each in held] == [200, 200]
    server.wait_for(lambda: server.post(TEXT, large).status == 200)


def test_at_five_times_what_can_be_served_everybody_hears_of_it(launch):
    """P184; that those admitted are served in time is tested in virtual time."""
    server = launch(on_step=lambda plan: time.sleep(4e-4 * plan.num_tokens), ttft_slo_ms=600.0)
    target = Target(url=f"http://{server.host}:{server.port}", model="tiny", endpoint="completions")
    requests = [
        PlannedRequest(
            index=number,
            kind="",
            messages=(Message("user", Passage(f"{number:<40}", 40)),),
            max_tokens=1,
            intended_s=number * 40 * 4e-4 / 5,
        )
        for number in range(500)
    ]
    result = asyncio.run(run_load(target, requests, timeout_s=HANG_S))
    kinds = {record.failure.kind if record.failure else None for record in result.records}
    assert kinds == {None, ErrorKind.OVERLOADED}
    refused = [record for record in result.records if record.failure]
    assert all(record.retry_after_s is None or record.retry_after_s >= 1 for record in refused)
    assert len(refused) > 100
    server.wait_for(lambda: server.idle)
