"""A request that makes steps fail."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest

from foreword.core.step import StepPlan
from foreword.errors import BackendError

TEXT = "/v1/completions"
POISON = ord("!")


def test_a_poisoned_request_fails_alone_every_time_it_comes(launch):
    gate = threading.Event()

    def on_step(plan: StepPlan) -> None:
        gate.wait(20)
        if any(POISON in step.token_ids for step in plan.sequences):
            raise BackendError("injected")

    server = launch(on_step=on_step)
    prompts = [f"say:good {number}" for number in range(5)]
    for _ in range(2):
        gate.clear()
        with concurrent.futures.ThreadPoolExecutor(7) as pool:
            first = pool.submit(server.post, TEXT, {"prompt": "say:first", "max_tokens": 64})
            server.wait_for(lambda: server.engine.stats().num_running == 1)
            calls = [
                pool.submit(server.post, TEXT, {"prompt": prompt, "max_tokens": 64})
                for prompt in (*prompts, "say:bad!")
            ]
            server.wait_for(lambda: server.engine.stats().num_waiting == 6)
            gate.set()
            *good, bad = [call.result(20) for call in calls]
        assert (bad.status, bad.error["type"]) == (500, "server_error")
        texts = [reply.json()["choices"][0]["text"] for reply in (first.result(0), *good)]
        shown = server.get(f"/v1/requests/{good[0].json()['id']}/waterfall").json()
        assert sum(part["duration_ms"] for part in shown["parts"]) == pytest.approx(
            shown["ttft_ms"], abs=0.1
        )
        assert texts == ["first", *(prompt.removeprefix("say:") for prompt in prompts)]
    assert server.get("/livez").status == 200
    assert server.idle
