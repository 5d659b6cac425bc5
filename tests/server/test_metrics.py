"""The server's own numbers equal what a client measures, and what the allocator says."""

from __future__ import annotations

import math
import re
import time
from dataclasses import fields
from typing import Any

import pytest
from support.waiting import StepGate

from foreword.metrics.catalog import GROUPS
from foreword.metrics.lifetime import Lifetime
from foreword.metrics.partition import PARTS
from foreword.tiers.memory import MemoryTier

TEXT = "/v1/completions"


def scrape(server: Any) -> dict[str, float]:
    """Return the samples of ``/metrics`` by name and labels, without the model's name."""
    text = server.get("/metrics").body.decode()
    samples = {}
    for name, labels, value in re.findall(r"^foreword:(\w+){(.*)} (\S+)$", text, re.M):
        kept = [label for label in labels.split(",") if label != 'model_name="tiny"']
        samples[f"{name}{{{','.join(kept)}}}"] = float(value)
    return samples


def moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {key: after[key] - before.get(key, 0.0) for key in after}


def test_ttft_lies_between_what_was_computed_and_what_the_client_saw(launch):
    server = launch(on_step=lambda plan: time.sleep(0.02))
    client = server.client()
    client.completions.create(model="tiny", prompt="say:warm")
    before = scrape(server)
    measured = whole = 0.0
    for _ in range(10):
        began = time.monotonic()
        stream = client.completions.create(
            model="tiny", prompt="say:abc", max_tokens=8, stream=True
        )
        next(iter(stream))
        measured += time.monotonic() - began
        for _ in stream:
            pass
        whole += time.monotonic() - began
    server.wait_for(lambda: scrape(server)["e2e_request_latency_seconds_count{}"] == 11)
    change = moved(before, scrape(server))
    assert change['time_to_first_token_seconds_count{stream="true"}'] == 10
    reported = change['time_to_first_token_seconds_sum{stream="true"}']
    assert 10 * 0.02 <= reported <= measured
    requests = server.get("/v1/requests?limit=10").json()["data"]  # test_requests times those
    assert reported == pytest.approx(sum(found["ttft_ms"] for found in requests) / 1e3, abs=1e-4)
    # Each answer was four steps: three letters and the end. The end is no content of its own.
    e2e_s = change["e2e_request_latency_seconds_sum{}"]
    assert 10 * 3 * 0.02 <= e2e_s <= whole
    assert change["inter_token_latency_seconds_count{}"] == 10 * 2
    assert 0 < change["inter_token_latency_seconds_sum{}"] <= e2e_s - reported
    assert change["request_time_per_output_token_seconds_count{}"] == 10
    assert 10 * 0.02 <= change["request_time_per_output_token_seconds_sum{}"] <= whole / 3


def test_the_parts_of_ttft_add_up_to_it(launch):
    server = launch(on_step=lambda plan: time.sleep(0.005), max_num_batched_tokens=128)
    for prompt in ("x" * 600 + "say:abc", "say:a", ["say:a", "say:b"]):
        for stream in (True, False):
            assert server.post(TEXT, {"prompt": prompt, "stream": stream}).status == 200
    now = scrape(server)
    ttft = [
        value for name, value in now.items() if name.startswith("time_to_first_token_seconds_sum")
    ]
    parts = {
        re.search('part="(.*)"', name)[1]: value
        for name, value in now.items()
        if name.startswith("ttft_part_seconds_sum")
    }
    assert sum(parts.values()) == pytest.approx(sum(ttft))
    assert set(parts) <= set(PARTS)
    assert parts["prefill"] >= 6 * 0.005
    # Both seen from the engine: waiting, then the steps up to the first token.
    assert now["request_queue_time_seconds_count{}"] == 6
    assert now["request_prefill_time_seconds_sum{}"] >= parts["prefill"] + parts["sample"]
    waited = now["request_queue_time_seconds_sum{}"] + now["request_prefill_time_seconds_sum{}"]
    assert waited < sum(ttft)


def test_steps_are_counted_with_their_tokens(launch):
    server = launch(on_step=lambda plan: time.sleep(0.002))
    began = time.monotonic()
    assert server.post(TEXT, {"prompt": "say:abcd"}).status == 200
    measured = time.monotonic() - began
    server.wait_for(lambda: scrape(server)["step_duration_seconds_count{}"] == 5)
    now = scrape(server)
    assert now["step_tokens_sum{}"] == 8 + 4 == now["computed_tokens_total{}"]
    assert 5 * 0.002 <= now["step_duration_seconds_sum{}"] < measured


def test_everything_that_is_exposed_is_documented(server):
    for body in ({"prompt": "say:x", "stream": True}, {"prompt": "say:x", "n": 2}, {"n": -1}):
        server.post(TEXT, body)
    text = server.get("/metrics").body.decode()
    exposed = re.findall(r"^# TYPE (foreword:\S+) ", text, re.M)
    families = {name for name in exposed if not name.endswith("_created")}
    documented = {metric.exposed_name: metric for group in GROUPS.values() for metric in group}
    assert families == set(documented)
    for name, labels in re.findall(
        r"^(foreword:\w+?)(?:_bucket|_sum|_count|_created)?{(.*)} ", text, re.M
    ):
        metric = documented.get(name) or documented[f"{name}_total"]
        given = set(re.findall(r'(\w+)="', labels)) - {"le"}
        assert given == {"model_name", *metric.labels}


def test_metrics_can_be_off(launch):
    server = launch(metrics=False)
    assert server.post(TEXT, {"prompt": "say:x"}).status == 200
    assert server.engine.on_step is None
    for path in ("/metrics", "/v1/stats", "/dashboard/"):
        assert server.get(path).status == 404


def test_every_request_is_counted_once(launch):
    server = launch()
    for body in (
        {"prompt": "say:abcd"},
        {"prompt": "say:abcd", "stream": True},
        {"prompt": "say:abcd", "max_tokens": 2, "n": 2},
        {"prompt": "bad", "n": -1},
        {"prompt": "x" * 5000},
    ):
        server.post(TEXT, body)
    server.post("/v1/chat/completions", {"messages": []})
    server.get("/nowhere")
    server.wait_for(lambda: scrape(server)["request_generation_tokens_count{}"] == 3)
    now = scrape(server)
    assert now['completions_total{finish_reason="stop"}'] == 2
    assert now['completions_total{finish_reason="length"}'] == 2
    assert 'completions_total{finish_reason="error"}' not in now
    assert now['errors_total{status="400"}'] == 3
    assert now['errors_total{status="404"}'] == 1
    sources = [now[f'prompt_tokens_total{{source="{name}"}}'] for name in ("computed", "pool")]
    assert sources == [8 + 1 + 1, 7 + 7]  # the last token of a prompt is never cached
    assert now["request_prompt_tokens_count{}"] == 3
    assert now["request_generation_tokens_sum{}"] == now["generation_tokens_total{}"] == 14
    assert now['time_to_first_token_seconds_count{stream="false"}'] == 2
    assert now['time_to_first_token_seconds_count{stream="true"}'] == 1
    assert now["e2e_request_latency_seconds_count{}"] == 3


def test_an_aborted_request_is_counted_as_one(launch):
    server = launch(on_step=lambda plan: time.sleep(0.005))
    client = server.client()
    stream = client.completions.create(model="tiny", prompt="x", max_tokens=3000, stream=True)
    next(iter(stream))
    stream.close()
    server.wait_for(lambda: scrape(server).get('completions_total{finish_reason="abort"}') == 1)
    assert scrape(server)["generation_tokens_total{}"] >= 1


def test_kv_use_and_queue_are_the_schedulers(launch):
    gate = StepGate(math.inf)
    server = launch(on_step=gate, max_num_seqs=1, num_blocks=100)
    assert server.post(TEXT, {"prompt": "x" * 320 + "say:a"}).status == 200
    server.wait_for(lambda: server.idle)
    now = scrape(server)
    assert now["kv_cache_usage_ratio{}"] == 0
    assert now['kv_blocks{state="cached"}'] == 21
    assert now['kv_blocks{state="free"}'] == 79

    again = server.post(TEXT, {"prompt": "x" * 320 + "say:a", "timing": True}).json()
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    now = scrape(server)
    assert cached == now['prompt_tokens_total{source="pool"}'] == 324
    saved_ms = 1e3 * now["prefix_cache_saved_seconds_total{}"]
    assert saved_ms == pytest.approx(again["timing"]["active"]["saved_ms"], abs=1e-3)
    assert saved_ms > 0

    gate.let(2)
    connections = [server.connect() for _ in range(3)]
    body = b'{"prompt": "y", "max_tokens": 1500, "stream": true}'
    for connection in connections:
        head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
    server.wait_for(lambda: scrape(server)["num_requests_waiting{}"] == 2)
    now = scrape(server)
    assert now["num_requests_running{}"] == 1
    referenced = 100 - now['kv_blocks{state="free"}'] - now['kv_blocks{state="cached"}']
    assert now['kv_blocks{state="referenced"}'] == referenced >= 1
    assert now["kv_cache_usage_ratio{}"] == referenced / 100
    for connection in connections:
        connection.close()
    gate.open()
    server.wait_for(lambda: server.idle)


def test_tokens_that_a_tier_gave_are_counted_apart(launch, monkeypatch):
    # However busy the machine is, a block that is there is waited for.
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)

    def compute(plan: Any) -> None:  # slowly: so loading is worth it
        time.sleep(plan.num_tokens * 2e-4)

    server = launch(on_step=compute, num_blocks=45, tiers=[MemoryTier(2**20)])
    for letter in "xyx":  # each has 40 blocks, so it drives the other one out
        assert server.post(TEXT, {"prompt": letter * 640, "max_tokens": 1}).status == 200
    now = scrape(server)
    sources = {
        source: now[f'prompt_tokens_total{{source="{source}"}}']
        for source in ("computed", "pool", "memory")
    }
    assert sources["memory"] >= 320
    assert sources["pool"] <= 5 * 16
    assert sum(sources.values()) == 3 * 640
    stats = server.get("/v1/stats").json()
    hits = {"pool": sources["pool"], "memory": sources["memory"]}
    assert stats["engine"]["cached_by_source"] == stats["window"]["cached_by_source"] == hits


def test_histograms_resolve_from_half_a_millisecond(server):
    server.post(TEXT, {"prompt": "say:x", "stream": True})
    text = server.get("/metrics").body.decode()
    edges = re.findall(r'time_to_first_token_seconds_bucket{le="([^"]+)"', text)
    assert edges[0] == "0.0005"
    assert float(edges[-2]) >= 60


@pytest.mark.parametrize("writes", [0, 1, 3])
def test_instants_are_in_order(writes):
    life = Lifetime(time.monotonic())
    gaps = [life.written() for _ in range(writes)]
    instants = [getattr(life, field.name) for field in fields(life)]
    happened = [instant for instant in instants if instant is not None]
    assert len(happened) == 1 + 2 * bool(writes)
    assert happened == sorted(happened)
    assert (life.ttft_s is None) == (writes == 0)
    assert gaps[:1] == [None] * bool(writes)
    assert all(gap is not None and gap >= 0 for gap in gaps[1:])
