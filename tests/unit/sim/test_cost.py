"""Cost profiles: read, checked, and fitted to steps."""

from __future__ import annotations

import json
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreword.errors import ConfigError, ServerError
from foreword.sched import CostModel, StepLoad
from foreword.sched.cost import LOAD_FEATURES
from foreword.sim.cost import CostProfile, StepClock, known_profiles, read_profile
from foreword.sim.fit import fit_server, fit_steps

GIVEN = read_profile("smollm2-135m-2-cores")


@pytest.mark.parametrize("name", known_profiles())
def test_profiles_that_come_with_foreword_can_be_read(name: str) -> None:
    profile = read_profile(name)
    assert profile.name
    assert profile.about
    assert profile.kv_tokens >= profile.context_tokens


def test_a_profile_is_what_its_file_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GIVEN.to_json() | {"name": "mine", "noise": 0.2}))
    assert read_profile(str(path)) == replace(GIVEN, name="mine", noise=0.2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step_s": float("nan")}, "cost.step_s: must be a number, finite and not below 0"),
        ({"step_s": float("inf")}, "cost.step_s: must be a number, finite"),
        ({"decode_s": -1}, "cost.decode_s: must be a number, finite and not below 0, not -1"),
        ({"noise": "much"}, "cost.noise: must be a number"),
        ({"noise": True}, "cost.noise: must be a number"),
        ({"kv_tokens": 0}, "cost.kv_tokens: must be a whole number above 0, not 0"),
        ({"kv_tokens": 1.5}, "cost.kv_tokens: must be a whole number"),
        ({"name": 7}, "cost.name: must be a text"),
        ({"prompt_token_s": 0}, "a step must take time"),
        ({"step_s": 0, "decode_s": 0}, "a step must take time"),
        ({"speed": 1}, "'speed' is none of"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(GIVEN.to_json() | change))
    with pytest.raises(ConfigError, match=told):
        read_profile(str(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "is no JSON"), ("[]", "is no JSON object"), ('{"name": "x"}', "lacks attention_pair_s")],
)
def test_files_that_are_no_profile_are_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_profile(str(path))


@pytest.mark.parametrize("source", ["nowhere.json", "/", ""])
def test_a_file_that_cannot_be_read_is_told_with_what_there_is(source: str) -> None:
    with pytest.raises(ConfigError, match=r"is none of .*smollm2-135m-2-cores, and no file"):
        read_profile(source)


def test_noise_is_seeded_and_keeps_the_mean() -> None:
    load = StepLoad(prompt_tokens=100, prompt_pairs=5050)
    exact = StepClock(GIVEN, "1").seconds(load)
    noisy = replace(GIVEN, noise=0.5)
    clock, twin = StepClock(noisy, "1"), StepClock(noisy, "1")
    drawn = [clock.seconds(load) for _ in range(4000)]
    assert drawn[:9] == [twin.seconds(load) for _ in range(9)]
    # the standard error is about 0.9 %
    assert statistics.fmean(drawn) == pytest.approx(exact, rel=0.04)
    assert len(set(drawn)) == 4000


def loads(count: int) -> list[StepLoad]:
    draw = random.Random(1)
    made = []
    for _ in range(count):
        load = StepLoad()
        for _ in range(draw.randrange(3)):
            load.add(draw.randrange(2, 200), draw.randrange(1000))
        for _ in range(draw.randrange(1 if load.prompt_tokens else 2, 9)):
            load.add(1, draw.randrange(1000))
        made.append(load)
    return made


def steps_of(profile: CostProfile, count: int = 600) -> list[dict[str, Any]]:
    """What a server whose steps take what ``profile`` says would tell of them."""
    clock, now_s, steps = StepClock(profile, "fit"), 100.0, []
    for number, load in enumerate(loads(count)):
        began_s = now_s + 0.0004
        ended_s = began_s + clock.seconds(load)
        steps.append(
            {
                "number": number,
                "planned_s": now_s + 0.0001,
                "began_s": began_s,
                "ended_s": ended_s,
                "applied_s": ended_s,
                "load": dict(zip(LOAD_FEATURES, load.features, strict=True)),
            }
        )
        now_s = ended_s + (5.0 if number % 10 == 9 else 0.0)  # nothing to do for a while
    return steps


def test_the_costs_that_made_the_steps_are_found() -> None:
    costs, ratios = fit_steps(steps_of(GIVEN))
    for name, found in costs.items():
        assert found == pytest.approx(getattr(GIVEN, name), rel=0.02), name
    assert max(abs(ratio - 1) for ratio in ratios) < 0.01


def test_noise_is_found_too_and_the_time_is_right_in_sum() -> None:
    steps = steps_of(replace(GIVEN, noise=0.2), 2000)
    costs, ratios = fit_steps(steps)
    model = CostModel(tuple(costs.values()))  # type: ignore[arg-type]
    predicted = sum(model.predict(load) for load in loads(2000))
    assert predicted == pytest.approx(sum(s["ended_s"] - s["began_s"] for s in steps))
    assert statistics.pstdev(ratios) == pytest.approx(0.2, abs=0.02)


def server(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "/v1/steps?last=32768": {"data": steps},
        "/v1/models": {"data": [{"id": "tiny", "max_model_len": 2048}]},
        "/v1/stats": {
            "engine": {"kv_blocks": {"total": 100, "block_size": 16}},
            "window": {"parts_ms": {"parse": 1.5, "tokenise": 0.5, "prefill": 80.0, "write": 3.0}},
        },
    }


def test_a_server_is_fitted_by_what_it_tells() -> None:
    answers = server(steps_of(replace(GIVEN, noise=0.1)))
    profile = fit_server("http://there", answers.__getitem__)
    assert profile.name == "tiny at http://there"
    assert (profile.context_tokens, profile.kv_tokens) == (2048, 1600)
    assert profile.between_steps_s == pytest.approx(0.0004)
    assert (profile.request_s, profile.reply_s) == pytest.approx((0.002, 0.003))
    assert profile.noise == pytest.approx(0.1, abs=0.02)
    assert "latest 600 steps" in profile.about


def test_a_server_that_has_hardly_computed_is_no_measure() -> None:
    answers = server(steps_of(GIVEN, 40))
    with pytest.raises(ServerError, match="has computed 40 steps, of which 100 are needed"):
        fit_server("http://there", answers.__getitem__)
