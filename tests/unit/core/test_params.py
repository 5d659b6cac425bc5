"""SamplingParams refuses what cannot be sampled with, and names the parameter."""

from __future__ import annotations

import math

import pytest

from foreword.core.params import SamplingParams
from foreword.errors import InvalidRequestError

NUMERIC = [
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
]
INTEGER = [
    "n",
    "top_k",
    "max_tokens",
    "min_tokens",
    "seed",
    "logprobs",
    "prompt_logprobs",
]


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 1e308, 10**400, -3.0, "1", True, None]
)
def test_numbers_must_be_finite_and_in_range(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name
    assert name in str(caught.value)


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("value", [1.5, "1", True, 2**70, -(2**70), math.nan])
def test_integers_must_be_integers_in_range(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["x"] * 65),
        ("stop", [""]),
        ("stop", [3]),
        ("stop", ["x" * 1025]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [1.0]),
        ("stop_token_ids", [0] * 257),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: 101}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", {"1": 1}),
        ("logit_bias", dict.fromkeys(range(1025), 1.0)),
        ("ignore_eos", 1),
    ],
)
def test_lists_are_bounded_and_typed(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


def test_values_are_normalised_to_hashable_ones() -> None:
    params = SamplingParams(stop="END", stop_token_ids=[5], logit_bias={7: 1}, top_k=-1)
    assert params.stop == ("END",)
    assert params.stop_token_ids == (5,)
    assert params.logit_bias == ((7, 1),)
    assert params.top_k == 0
    assert hash(params) == hash(
        SamplingParams(stop=["END"], stop_token_ids=(5,), logit_bias=[(7, 1)])
    )


def test_min_tokens_over_max_tokens_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="min_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)


def test_ids_are_checked_against_the_vocabulary() -> None:
    SamplingParams(stop_token_ids=[9], logit_bias={9: 1}).check_token_ids(10)
    for bad in (SamplingParams(stop_token_ids=[10]), SamplingParams(logit_bias={10: 1})):
        with pytest.raises(InvalidRequestError, match="outside the vocabulary of 10"):
            bad.check_token_ids(10)
