"""`foreword explain`, asked of real servers, and of things that are none."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.raw_server import raw_server
from support.waiting import StepGate
from typer.testing import CliRunner

from foreword.cli.main import app
from foreword.errors import ConfigError, ServerError

TEXT = "/v1/completions"


def explain(server: Any, *words: str) -> str:
    return explain_at(f"http://{server.host}:{server.port}", *words)


def explain_at(url: str, *words: str) -> str:
    done = CliRunner().invoke(app, ["explain", *words, "--url", url], env={"COLUMNS": "160"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_request_that_waited_names_who_was_served(launch):
    gate = StepGate()
    server = launch(on_step=gate, max_num_batched_tokens=64)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(server.post, TEXT, {"prompt": "x" * 640, "max_tokens": 1})
        server.wait_for(lambda: server.engine.steps.next_number == 1)
        short = pool.submit(server.post, TEXT, {"prompt": "say:a", "temperature": 0})
        server.wait_for(lambda: server.engine.stats().num_waiting == 1)
        gate.open()
        ids = [future.result().json()["id"] for future in (long, short)]
    shown = explain(server, ids[1])
    assert shown.splitlines()[0].startswith(f"{ids[1]}  {TEXT}  tiny  finished (stop)")
    assert f"{ids[0]} had 576 prompt tokens computed" in shown
    assert "token budget" in shown
    assert "a step was running when it came" in shown
    rows = re.findall(r"^(\w+) +([\d.]+) ms +\d+%", shown, re.M)
    [(ttft, predicted)] = re.findall(r"TTFT ([\d.]+) ms, predicted ([\d.]+)", shown)
    assert float(predicted) > 0
    assert sum(float(ms) for _, ms in rows) == pytest.approx(float(ttft), abs=0.05 * len(rows))
    assert [name for name, _ in rows][-1] == "write"


def test_the_slowest_the_last_and_json(launch):
    delays = iter([0.0, 0.2, 0.2])
    server = launch(on_step=lambda plan: time.sleep(next(delays, 0.0)))
    ids = [server.post(TEXT, {"prompt": f"say:{n}", "n": 2}).json()["id"] for n in range(4)]
    found = server.get("/v1/requests").json()["data"]
    assert ids[3] in explain(server, "last")
    slowest = max(found, key=lambda each: each["ttft_ms"])["id"]
    assert slowest in explain(server)
    assert json.loads(explain(server, ids[2], "--json"))["id"] == ids[2]


def test_chunks_are_one_row(launch):
    server = launch(max_num_batched_tokens=64)
    answer = server.post(TEXT, {"prompt": "x" * 200, "max_tokens": 2}).json()
    assert "200 tokens in 4 chunks" in explain(server, answer["id"])


@pytest.mark.parametrize("words", [(), ("last",)])
def test_nothing_to_explain_yet(launch, words):
    with pytest.raises(ServerError, match="has not answered a request yet"):
        explain(launch(), *words)


@pytest.mark.parametrize("request_id", ["nope", "a/b?c#d e", "[red]x[/]", "ü"])
def test_an_unknown_id(launch, request_id):
    with pytest.raises(ServerError, match=r"404: no request .* is known here") as caught:
        explain(launch(request_history=17), request_id)
    assert request_id in str(caught.value)
    assert "17" in str(caught.value)


def test_a_server_with_a_key(launch):
    server = launch(api_key=["secret"])
    with pytest.raises(ServerError, match="401: missing or incorrect API key"):
        explain(server)
    with pytest.raises(ServerError, match="not answered a request"):
        explain(server, "--api-key", "secret")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>\xff", "none of foreword's servers"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1]", "none of foreword's servers"),
        (b"HTTP/1.1 404 No\r\nConnection: close\r\n\r\n{}", "answers 404: {}"),
        (b"nonsense", "Is `foreword serve` running there"),
        (b"", "Is `foreword serve` running there"),
    ],
)
def test_something_that_is_no_server_of_ours(answer, said):
    with raw_server([answer]) as url, pytest.raises(ServerError, match=said):
        explain_at(url)


def test_nobody_listens_or_the_url_is_none():
    with pytest.raises(ServerError, match=r"refused. Is `foreword serve` running there"):
        explain_at("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no URL"):
        explain_at("localhost:8000")
