from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from foreword.core.step import SequenceStep, StepPlan
from foreword.sched.cost import CostModel, StepLoad

TRUE_S = (2e-3, 4e-4, 1e-7, 6e-4, 1e-6)
RECORDED = Path(__file__).parents[2] / "data" / "steps.json"


def random_load(rng: random.Random, *, prompts: bool = True) -> StepLoad:
    load = StepLoad()
    for _ in range(rng.randrange(1, 9)):
        load.add(1, rng.randrange(10, 3000))
    if prompts and rng.random() < 0.3:
        load.add(rng.randrange(2, 512), rng.randrange(0, 3000))
    return load


def seconds(load: StepLoad) -> float:
    return CostModel(TRUE_S).predict(load)


def p90_error(model: CostModel, loads: list[StepLoad]) -> float:
    errors = sorted(abs(model.predict(load) / seconds(load) - 1) for load in loads)
    return errors[int(0.9 * len(errors))]


def test_a_load_counts_every_pair_of_positions_once() -> None:
    plan = StepPlan((SequenceStep(0, [7] * 3, 10, [0]), SequenceStep(1, [7], 20, [1, 2])))
    assert StepLoad.of(plan).features == (1.0, 3.0, 11.0 + 12.0 + 13.0, 1.0, 21.0)


def test_recorded_steps_are_predicted_within_15_percent() -> None:
    """Steps of SmolLM2 135M on two cores (tests/data/steps.json), each before it is learnt from."""
    model, errors = CostModel(), []
    for prompt_tokens, pairs, decodes, context, took_s in json.loads(RECORDED.read_text()):
        load = StepLoad(prompt_tokens, pairs, decodes, context)
        errors.append(abs(model.predict(load) - took_s) / took_s)
        model.observe(load, took_s)
    warm = sorted(errors[100:])
    assert len(warm) > 200
    assert warm[int(0.9 * len(warm))] < 0.15


@pytest.mark.parametrize("factor", [0.05, 1.0, 40.0])
def test_the_model_finds_a_machine_of_any_speed(factor: float) -> None:
    rng = random.Random(1)
    model = CostModel(tuple(factor * value for value in TRUE_S[::-1]))  # type: ignore[arg-type]
    for _ in range(300):
        load = random_load(rng)
        model.observe(load, seconds(load))
    assert p90_error(model, [random_load(rng) for _ in range(100)]) < 0.03


def test_hiccups_hardly_move_it() -> None:
    rng = random.Random(2)
    model = CostModel(TRUE_S)
    for step in range(300):
        load = random_load(rng)
        hiccup = 10.0 if step % 20 == 0 else 1.0
        model.observe(load, seconds(load) * hiccup * rng.uniform(0.95, 1.05))
    assert p90_error(model, [random_load(rng) for _ in range(100)]) < 0.1


def test_hours_of_decoding_do_not_make_it_forget_prompts() -> None:
    rng = random.Random(3)
    model = CostModel(TRUE_S)
    for _ in range(25_000):  # 0.97 ** 25,000 is 0 in floating point
        load = random_load(rng, prompts=False)
        model.observe(load, seconds(load))
    prompt = StepLoad.prompt(300, 0)
    assert model.predict(prompt) == pytest.approx(seconds(prompt), rel=0.1)


def test_no_kind_of_work_ever_costs_less_than_nothing() -> None:
    rng = random.Random(4)
    model = CostModel()
    for _ in range(500):
        model.observe(random_load(rng), rng.uniform(1e-5, 1.0))
        assert min(model.coefficients_s) >= 0


@pytest.mark.parametrize("took_s", [0.0, -1.0])
def test_a_clock_that_stands_still_teaches_nothing(took_s: float) -> None:
    model = CostModel(TRUE_S)
    model.observe(StepLoad.prompt(10, 0), took_s)
    assert model.coefficients_s == TRUE_S


@pytest.mark.parametrize("start", [0, 5000])
@pytest.mark.parametrize("within_s", [0.001, 0.05, 2.0])
def test_tokens_within_is_the_most_that_fits(start: int, within_s: float) -> None:
    model = CostModel(TRUE_S)
    most = model.tokens_within(within_s, start)
    assert most < 2 or model.prompt_s(most, start) <= within_s
    assert model.prompt_s(most + 2, start) > within_s


def test_no_time_is_no_tokens_and_free_tokens_have_no_limit() -> None:
    assert CostModel(TRUE_S).tokens_within(-0.1, 0) == 0
    assert CostModel((1e-3, 0.0, 0.0, 0.0, 0.0)).tokens_within(0.1, 0) > 10**9
