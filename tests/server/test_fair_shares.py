"""API keys share the machine."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest


@pytest.mark.parametrize("api_key", [["many", "one"], None])
def test_a_key_with_one_request_does_not_wait_for_all_of_another(launch, api_key):
    """Without keys all clients are one tenant, whatever they send."""
    gate, ended = threading.Event(), []
    server = launch(
        api_key=api_key,
        on_step=lambda plan: gate.wait(20),
        max_num_seqs=1,
        scheduling_policy="fcfs",
    )

    def ask(key: str, letter: str) -> None:
        body = {"prompt": letter * 300, "max_tokens": 1}
        reply = server.send("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
        assert reply.status == 200
        ended.append(key)

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        calls = [pool.submit(ask, "many", letter) for letter in "abcdef"]
        server.wait_for(lambda: server.engine.stats().num_waiting == 5)
        calls.append(pool.submit(ask, "one", "g"))
        server.wait_for(lambda: server.engine.stats().num_waiting == 6)
        gate.set()
        for call in calls:
            call.result(20)
    assert ended.index("one") <= 2 if api_key else ended.index("one") >= 5
