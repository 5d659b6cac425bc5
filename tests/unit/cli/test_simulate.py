"""`foreword simulate`, from the words to the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from foreword.cli.main import app
from foreword.errors import ConfigError, ForewordError


def simulate(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *words], env={"COLUMNS": "120"})


def test_two_policies_side_by_side(tmp_path: Path) -> None:
    data, page = tmp_path / "sim.json", tmp_path / "sim.html"
    done = simulate(
        *("--workload", "mixed", "--set", "long_tokens=1000", "--request-rate", "4"),
        *("--num-prompts", "40", "--scheduling-policy", "fcfs,shortest", "--replicas", "2"),
        *("--slo-ttft-ms", "500", "--noise", "0.1", "--json", str(data), "--html", str(page)),
    )
    assert done.exit_code == 0, done.output
    assert "SmolLM2 135M" in done.output
    assert "goodput" in done.output
    report = json.loads(data.read_text())
    assert report["schema"] == "foreword.simulate/1"
    assert report["cost"]["noise"] == 0.1
    assert [each["policy"] for each in report["policies"]] == ["fcfs", "shortest"]
    assert [len(each["requests"]) for each in report["policies"]] == [40, 40]
    assert [len(each["replicas"]) for each in report["policies"]] == [2, 2]
    text = page.read_text()
    for heading in ("TTFT of how many requests was below", "Requests that wait"):
        assert heading in text


def test_a_kind_of_request_may_be_refused_as_a_whole(tmp_path: Path) -> None:
    page = tmp_path / "sim.html"
    done = simulate(
        *("--workload", "mixed", "--num-prompts", "40", "--request-rate", "1"),
        *("--scheduling-policy", "shortest,fcfs", "--ttft-slo-ms", "600", "--html", str(page)),
    )
    assert done.exit_code == 0, done.output
    assert "refused, first: 429: the first token would come" in " ".join(done.output.split())
    assert "long" not in done.output
    assert page.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workload", "trace:/nowhere"), "trace: /nowhere cannot be read"),
        (("--workload", "dance"), "workload: 'dance' is none of"),
        (("--workload", "trace:/nowhere", "--request-rate", "3"), "cannot be read"),
        (("--cost", "/nowhere.json"), "is none of .* and no file that can be read"),
        (("--cost", "http://127.0.0.1:9"), "Is `foreword serve` running there"),
        (("--replicas", "0"), "replicas: must be at least 1, not 0"),
        (("--noise", "nan"), "cost.noise: must be a number, finite"),
        (("--noise", "-1"), "cost.noise: must be a number, finite"),
        (("--request-rate", "0"), "request_rate: must be above 0"),
        (("--scheduling-policy", "fcfs,"), "scheduling_policy: must be one of"),
        (("--slo-ttft-ms", "0"), "slo_ttft_ms: must be above 0"),
        (("--block-size", "0"), "block_size: must be a whole number"),
        (("--max-model-len", "9000"), "over the model's context of 8192"),
    ],
)
def test_mistakes_are_told_in_a_line(words: tuple[str, ...], told: str) -> None:
    done = simulate(*words)
    assert isinstance(done.exception, ForewordError), done.output
    with pytest.raises(ForewordError, match=told):
        raise done.exception


def test_a_profile_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    path.write_text('{"name": "slow", "context_tokens": 512, "kv_tokens": 4096, "step_s": NaN}')
    done = simulate("--cost", str(path))
    assert isinstance(done.exception, ConfigError)
    assert "lacks" in str(done.exception)


def test_a_pool_that_holds_no_prompt_is_told_and_the_status_is_1() -> None:
    done = simulate("--num-blocks", "5", "--num-prompts", "3")
    assert done.exit_code == 1
    assert "3 refused, first: 400: the prompt has" in done.output
