"""The server's own numbers equal what a client measures, and what the allocator says."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from typing import Any

import pytest

from foreword.metrics.lifetime import Lifetime

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


def test_ttft_is_what_the_client_measures(launch):
    server = launch(on_step=lambda plan: time.sleep(0.02))
    client = server.client()
    client.completions.create(model="tiny", prompt="say:warm")
    before = scrape(server)
    measured = 0.0
    for _ in range(10):
        began = time.monotonic()
        stream = client.completions.create(
            model="tiny", prompt="say:abc", max_tokens=8, stream=True
        )
        next(iter(stream))
        measured += time.monotonic() - began
        for _ in stream:
            pass
    change = moved(before, scrape(server))
    assert change['time_to_first_token_seconds_count{stream="true"}'] == 10
    reported = change['time_to_first_token_seconds_sum{stream="true"}']
    assert 10 * 0.02 <= reported <= measured
    assert measured - reported < 10 * 0.005 + 0.05 * measured
    # Each answer was four steps: three letters and the end. The end is no content of its own.
    assert 3 * 0.02 <= change["e2e_request_latency_seconds_sum{}"] / 10 < 0.5
    assert change["inter_token_latency_seconds_count{}"] == 10 * 2
    assert 0.02 <= change["inter_token_latency_seconds_sum{}"] / 20 < 0.1
    assert change["request_queue_seconds_count{}"] == 10
    preparation = change["request_preparation_seconds_sum{}"]
    assert 0 < preparation + change["request_queue_seconds_sum{}"] <= reported - 10 * 0.02


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
    server.wait_for(lambda: scrape(server).get("generation_tokens_total{}") == 14)
    now = scrape(server)
    assert now['completions_total{finish_reason="stop"}'] == 2
    assert now['completions_total{finish_reason="length"}'] == 2
    assert 'completions_total{finish_reason="error"}' not in now
    assert now['errors_total{status="400"}'] == 3
    assert now['errors_total{status="404"}'] == 1
    assert now["prompt_tokens_total{}"] == 24
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
    server = launch(on_step=lambda plan: time.sleep(0.002), max_num_seqs=1, num_blocks=100)
    assert server.post(TEXT, {"prompt": "x" * 320 + "say:a"}).status == 200
    server.wait_for(lambda: server.idle)
    now = scrape(server)
    assert now["kv_blocks_total{}"] == 100
    assert now["kv_cache_usage_ratio{}"] == 0
    assert now["kv_blocks_cached{}"] == 21
    assert now["kv_blocks_free{}"] == 79

    again = server.post(TEXT, {"prompt": "x" * 320 + "say:a", "stream": False}).json()
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == scrape(server)["cached_prompt_tokens_total{}"] == 324

    connections = [server.connect() for _ in range(3)]
    body = b'{"prompt": "y", "max_tokens": 1500, "stream": true}'
    for connection in connections:
        head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
    server.wait_for(lambda: scrape(server)["num_requests_waiting{}"] == 2)
    now = scrape(server)
    assert now["num_requests_running{}"] == 1
    referenced = 100 - now["kv_blocks_free{}"] - now["kv_blocks_cached{}"]
    assert referenced >= 1
    for connection in connections:
        connection.close()
    server.wait_for(lambda: server.idle)


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
