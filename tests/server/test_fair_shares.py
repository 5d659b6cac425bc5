"""API keys share the machine."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest

from foreword.core.step import StepPlan


@pytest.mark.parametrize("api_key", [["many", "one"], None])
def test_a_key_with_one_request_does_not_wait_for_all_of_another(launch, api_key):
    """Without keys all clients are one tenant, whatever they send.

    Judged by the order of steps: threads of clients hear of their answers in any order.
    """
    gate, begun = threading.Event(), []

    def on_step(plan: StepPlan) -> None:
        gate.wait(20)
        begun.extend(chr(step.token_ids[0]) for step in plan.sequences if step.start == 0)

    server = launch(api_key=api_key, on_step=on_step, max_num_seqs=1, scheduling_policy="fcfs")

    def ask(key: str, letter: str) -> None:
        body = {"prompt": letter * 300, "max_tokens": 1}
        reply = server.send("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
        assert reply.status == 200

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        calls = [pool.submit(ask, "many", letter) for letter in "abcdef"]
        server.wait_for(lambda: server.engine.stats().num_waiting == 5)
        calls.append(pool.submit(ask, "one", "g"))
        server.wait_for(lambda: server.engine.stats().num_waiting == 6)
        gate.set()
        for call in calls:
            call.result(20)
    assert begun.index("g") <= 2 if api_key else begun.index("g") == 6
