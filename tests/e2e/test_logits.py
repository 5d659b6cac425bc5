"""Real models: logits equal to those of `transformers`, and to themselves in any cut.

Goldens are made by tools/make_logit_goldens.py.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.steps import ByHand, every

from foreword.backends.cpu.backend import CpuBackend
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

GOLDENS = Path(__file__).parent.parent / "data" / "logits"
TOLERANCE = 2e-3
CLEAR_GAP = 1e-3  # between neighbours among the top 20: here their order is certain


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDENS / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def file(name: str, request: pytest.FixtureRequest) -> GGUFFile:
    fixture = {"smollm2-135m": "smollm2_path", "gemma3-270m": "gemma_path"}[name]
    return GGUFFile.open(request.getfixturevalue(fixture))


def by_hand(file: GGUFFile, *, num_threads: int = 0) -> ByHand:
    return ByHand(CpuBackend(file, load_spec(file), num_threads=num_threads))


@pytest.fixture(scope="module")
def hand(file: GGUFFile) -> ByHand:
    return by_hand(file)


def assert_same_order(got: np.ndarray, ids: list[int], logits: list[float]) -> None:
    """Tokens whose logits lie clearly apart come in the same order."""
    ranked = np.argsort(-got, kind="stable").tolist()
    apart = [0, *(i for i in range(1, len(ids)) if logits[i - 1] - logits[i] > CLEAR_GAP)]
    for first, end in itertools.pairwise(apart):
        assert set(ranked[first:end]) == set(ids[first:end])


def test_logits_are_those_of_transformers(hand: ByHand, golden: dict[str, Any]) -> None:
    for prompt in golden["prompts"]:
        got = hand.logits_at(prompt["token_ids"], prompt["positions"])  # the last one is the end
        top = got[-1][prompt["top_ids"]]
        np.testing.assert_allclose(top, prompt["top_logits"], atol=TOLERANCE, rtol=0)
        assert_same_order(got[-1], prompt["top_ids"], prompt["top_logits"])
        np.testing.assert_allclose(
            got[:, golden["probed_ids"]], prompt["probed_logits"], atol=TOLERANCE, rtol=0
        )


def test_logits_depend_on_nothing_but_the_sequence(
    file: GGUFFile, hand: ByHand, golden: dict[str, Any]
) -> None:
    prompt = golden["prompts"][-1]["token_ids"][:40]
    (whole,) = hand.logits([prompt], [])
    for size in (1, 7, 16):
        (got,) = hand.logits([prompt], every(size, len(prompt)))
        np.testing.assert_array_equal(got, whole, err_msg=f"chunks of {size}")
    together = hand.logits([prompt[::-1], prompt, prompt[:9]], [30])
    np.testing.assert_array_equal(together[1], whole, err_msg="in a batch")
    (alone,) = by_hand(file, num_threads=1).logits([prompt], [])
    np.testing.assert_array_equal(alone, whole, err_msg="one thread")
