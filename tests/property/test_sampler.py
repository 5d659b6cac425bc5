"""The C++ sampler, draw by draw, against a slow and obvious model in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foreword._core import SamplerScratch, SamplingSpec, philox4x32, sample

SIZES = st.sampled_from([1, 2, 3, 15, 16, 17, 63, 64, 65, 255, 256, 257, 600, 1023, 1024, 1025])


def uniform(seed: int, draw: int, position: int) -> float:
    low, high, _, _ = philox4x32(
        (position & 0xFFFFFFFF, position >> 32, draw, 0), (seed & 0xFFFFFFFF, seed >> 32)
    )
    return ((high << 32 | low) >> 11) * 2.0**-53


def edited(logits: NDArray[np.float32], case: dict[str, Any]) -> NDArray[np.float32]:
    """Bias, bans and penalties, in the order and arithmetic (float32) that the sampler promises."""
    z = logits.copy()
    for token_id, bias in case["logit_bias"]:
        z[token_id] += np.float32(bias)
    z[case["banned"]] = -np.inf
    repetition, presence, frequency = (
        np.float32(case[f"{name}_penalty"]) for name in ("repetition", "presence", "frequency")
    )
    output = case["history"][case["num_prompt_tokens"] :]
    if (repetition, presence, frequency) == (1, 0, 0):
        return z
    for token_id in set(case["history"]):
        z[token_id] = z[token_id] / repetition if z[token_id] > 0 else z[token_id] * repetition
        if token_id in output:
            z[token_id] -= presence + frequency * np.float32(output.count(token_id))
    return z


def probabilities(logits: NDArray[np.float32], case: dict[str, Any]) -> NDArray[np.float64]:
    """What each token's chance ought to be. Drops the example where rounding decides a cut."""
    z = edited(logits, case).astype(np.float64)
    likeliest_first = np.lexsort((np.arange(len(z)), -z))
    if case["temperature"] == 0:
        return (np.arange(len(z)) == likeliest_first[0]).astype(np.float64)
    relative = np.exp((z - z.max()) / np.float32(case["temperature"]))
    assume(not np.any(np.abs(relative / max(case["min_p"], 1e-300) - 1) < 1e-4))
    p = np.where(relative >= np.float32(case["min_p"]), relative, 0)
    if case["top_k"]:
        p[likeliest_first[case["top_k"] :]] = 0
    p /= p.sum()
    if case["top_p"] < 1:
        reached = np.cumsum(p[likeliest_first])
        assume(not np.any(np.abs(reached - case["top_p"]) < 1e-5))
        p[likeliest_first[1:][reached[:-1] >= case["top_p"]]] = 0
        p /= p.sum()
    return p


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers that float32 holds exactly, so that both sides start from the same."""
    return st.floats(low, high).map(lambda x: float(np.float32(x)))


def off(value: float, *others: Any) -> Any:
    return st.one_of(st.just(value), *others)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[np.float32], dict[str, Any]]:
    size = draw(SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = rng.normal(0, draw(st.sampled_from([0.0, 0.1, 1.0, 4.0, 30.0])), size)
    logits = logits.astype(np.float32)
    if draw(st.booleans()):  # many ties
        logits = np.round(logits)
    if draw(st.booleans()):  # a dead tail
        logits[draw(st.integers(1, size)) :] = -np.inf
    ids = st.integers(0, size - 1)
    history = draw(st.lists(ids, max_size=12))
    case = {
        "temperature": draw(off(1.0, st.just(0.0), floats(0.05, 100))),
        "top_k": draw(off(0, st.integers(1, size + 1))),
        "top_p": draw(off(1.0, floats(0.01, 0.999))),
        "min_p": draw(off(0.0, floats(2**-20, 1))),
        "repetition_penalty": draw(off(1.0, floats(0.5, 2))),
        "presence_penalty": draw(off(0.0, floats(-2, 2))),
        "frequency_penalty": draw(off(0.0, floats(-2, 2))),
        "logit_bias": draw(st.lists(st.tuples(ids, floats(-100, 100)), max_size=4)),
        "history": history,
        "num_prompt_tokens": draw(st.integers(0, len(history))),
        "banned": draw(st.lists(ids, max_size=3)),
    }
    return logits, case


PER_CALL = ("history", "num_prompt_tokens", "banned")
SCRATCH = SamplerScratch()  # one for all examples: what is left in it must not matter


def run(logits: NDArray[np.float32], case: dict[str, Any], **call: Any) -> list[int]:
    spec = SamplingSpec(**{k: v for k, v in case.items() if k not in PER_CALL})
    per_call = {k: case[k] for k in PER_CALL if k in case}
    return sample(logits, spec, scratch=SCRATCH, **per_call, **call)[0]


@settings(max_examples=400)
@given(cases(), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_every_draw_is_the_gold_models(
    example: tuple[NDArray[np.float32], dict[str, Any]], seed: int, position: int
) -> None:
    logits, case = example
    assume(np.isfinite(edited(logits, case)).any())
    p = probabilities(logits, case)
    cumulative = np.cumsum(p)
    ids = run(logits, case, seed=seed, position=position, draws=range(24))
    for completion, token_id in enumerate(ids):
        u = uniform(seed, completion, position) * cumulative[-1]
        assert p[token_id] > 0
        assert cumulative[token_id] - p[token_id] - 1e-5 <= u <= cumulative[token_id] + 1e-5


@settings(max_examples=300)
@given(
    st.binary(min_size=4, max_size=1200),
    st.fixed_dictionaries(
        {
            "temperature": floats(0, 100),
            "top_k": st.integers(0, 2**31 - 1) | st.integers(0, 40),
            "top_p": floats(2**-149, 1),
            "min_p": floats(0, 1),
            "repetition_penalty": floats(2**-149, 100),
            "frequency_penalty": floats(-2, 2),
            "logprobs": st.integers(-1, 20),
            "history": st.lists(st.just(0), max_size=3),
        }
    ),
)
def test_any_bits_for_logits_give_a_token_or_the_error(data: bytes, case: dict[str, Any]) -> None:
    logits = np.frombuffer(data[: len(data) // 4 * 4], np.float32).copy()
    before = logits.tobytes()
    try:
        ids = run(logits, case, seed=1, position=1, draws=range(4))
    except ValueError:
        # token 0 may have been penalised to NaN or -inf; nothing else may have been there
        assert not any(x > -math.inf for x in logits[1:].tolist())
    else:
        assert all(0 <= i < len(logits) and not math.isnan(logits[i]) for i in ids)
    assert logits.tobytes() == before
