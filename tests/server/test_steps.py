"""`/v1/steps` tells what the steps held."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from foreword.cli.main import app

TEXT = "/v1/completions"
PATH = "/v1/steps"


def test_steps_and_their_load(launch):
    server = launch(max_num_batched_tokens=64)
    assert server.get(PATH).json() == {"object": "list", "data": []}
    answer = server.post(TEXT, {"prompt": "x" * 90 + "say:abc"})
    assert answer.status == 200
    steps = server.get(PATH).json()["data"]
    assert [step["number"] for step in steps] == list(range(len(steps)))
    loads = [step["load"] for step in steps]
    assert [load["prompt_tokens"] for load in loads] == [64, 33, 0, 0, 0]
    assert [load["prompt_pairs"] for load in loads[:2]] == [64 * 65 / 2, 33 * 64 + 33 * 34 / 2]
    assert [load["decodes"] for load in loads] == [0, 0, 1, 1, 1]
    assert [load["decode_context"] for load in loads[2:]] == [98, 99, 100]
    for step in steps:
        assert step["planned_s"] <= step["began_s"] <= step["ended_s"] <= step["applied_s"]
    assert server.get(f"{PATH}?last=2").json()["data"] == steps[-2:]


@pytest.mark.parametrize("last", ["0", "-1", "x", "32769"])
def test_a_number_of_steps_that_cannot_be(server, last):
    answer = server.get(f"{PATH}?last={last}")
    assert answer.status == 400
    assert answer.json()["error"]["param"] == "last"


def test_a_simulation_takes_its_costs_from_a_server(launch, tmp_path):
    server = launch(max_model_len=1024, num_blocks=100)
    for _ in range(10):
        assert server.post(TEXT, {"prompt": "x" * 64, "max_tokens": 12}).status == 200
    url, saved = f"http://127.0.0.1:{server.port}", tmp_path / "tiny.json"
    words = ["simulate", "--num-prompts", "5", "--workload", "fixed"]
    first = CliRunner().invoke(app, [*words, "--cost", url, "--save-cost", str(saved)])
    assert first.exit_code == 0, first.output
    assert "Fitted to its latest 120 steps" in " ".join(first.output.split())
    profile = json.loads(saved.read_text())
    assert (profile["context_tokens"], profile["kv_tokens"]) == (1024, 1600)
    assert profile["request_s"] > 0 < profile["reply_s"]
    again = CliRunner().invoke(app, [*words, "--cost", str(saved)])
    assert again.output == first.output
