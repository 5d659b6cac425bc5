"""`/v1/stats` says what the client saw."""

from __future__ import annotations

import time

import pytest

TEXT = "/v1/completions"
PATH = "/v1/stats"


def test_an_idle_server_has_nothing_to_tell(launch):
    stats = launch(num_blocks=100).get(PATH).json()
    assert stats["model"] == "tiny"
    assert stats["started_unix_s"] <= stats["now_unix_s"]
    assert stats["engine"] == {
        "running": 0,
        "waiting": 0,
        "waiting_tokens": 0,
        "kv_blocks": {
            "total": 100,
            "referenced": 0,
            "cached": 0,
            "free": 100,
            "block_size": 16,
        },
        "steps": 0,
        "preemptions": 0,
        "waste_ratio": 0.0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "cached_by_source": {"pool": 0},
        "generated_tokens": 0,
    }
    window = stats["window"]
    assert (window["duration_s"], window["requests"], window["ttft_ms"]) == (300, {}, None)
    assert len(stats["slots"]) == 60
    assert all(slot["duration_s"] == 5 and not slot["parts_ms"] for slot in stats["slots"])


def test_the_window_adds_up(launch):
    server = launch(on_step=lambda plan: time.sleep(0.01))
    for _ in range(3):
        assert server.post(TEXT, {"prompt": "x" * 64 + "say:abc", "stream": True}).status == 200
    server.post(TEXT, {"prompt": ""})
    server.wait_for(lambda: server.get(PATH).json()["window"]["requests"] == {"finished": 3})
    stats = server.get(PATH).json()
    window = stats["window"]
    assert window["errors"] == {"400": 1}
    quantiles = window["ttft_ms"]
    assert 10 <= quantiles["p50"] <= quantiles["p90"] <= quantiles["p99"] <= quantiles["max"]
    assert window["tpot_ms"]["p50"] >= 10
    assert 10 <= sum(window["parts_ms"].values()) <= quantiles["max"]
    assert window["parts_ms"]["prefill"] >= 10
    assert (window["prompt_tokens"], window["generated_tokens"]) == (3 * 71, 3 * 4)
    assert window["cached_tokens"] == stats["engine"]["cached_tokens"] > 0
    assert sum(slot["prompt_tokens"] for slot in stats["slots"]) == 3 * 71
    ages_s = [stats["now_unix_s"] - slot["begin_unix_s"] for slot in stats["slots"]]
    assert ages_s == sorted(ages_s, reverse=True)
    assert -1 < ages_s[-1] <= 6


@pytest.mark.parametrize(("window_s", "slot_s"), [(300, 5), (900, 15), (3600, 60)])
def test_longer_windows_have_longer_slots(server, window_s, slot_s):
    stats = server.get(f"{PATH}?window_s={window_s}").json()
    assert stats["window"]["duration_s"] == window_s
    assert [slot["duration_s"] for slot in stats["slots"]] == [slot_s] * 60


@pytest.mark.parametrize("window", ["0", "-300", "301", "3e2", "", "9" * 400, "%00", "<script>"])
def test_other_windows_are_refused_in_words(server, window):
    reply = server.get(f"{PATH}?window_s={window}")
    assert reply.status == 400
    assert reply.error["param"] == "window_s"
    assert "300, 900, 3600" in reply.error["message"]


def test_it_needs_the_key(launch):
    server = launch(api_key=["secret"])
    assert server.get(PATH).status == 401
    assert server.send("GET", PATH, headers={"Authorization": "Bearer secret"}).status == 200
