"""The real model's greedy output: equal alone, batched, chunked, preempted or from the cache."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

import pytest
from support.scheduling import make_short_sighted

from foreword import LLM, SamplingParams
from foreword.errors import ContextLengthError

PARAMS = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True, logprobs=2)
TEXT = pydoc_data.topics.topics["assignment"]
# lengths on both sides of a block's and of a chunk's edge
PROMPTS = [
    TEXT[start : start + length] for start, length in [(0, 60), (200, 400), (900, 1400), (0, 61)]
]

Answer = list[tuple[int, float]]


def answers(llm: LLM, prompts: list[str]) -> list[Answer]:
    """Tokens and their log-probabilities: equal ones mean equal logits, bit for bit."""
    return [
        [(entry.token_id, entry.logprob) for entry in output.outputs[0].logprobs]
        for output in llm.generate(prompts, PARAMS)
    ]


@pytest.fixture(scope="module", params=["float32", "int8"])
def compute(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def alone(smollm2_path: Path, compute: str) -> list[Answer]:
    llm = LLM(str(smollm2_path), compute=compute, enable_prefix_caching=False)
    return [answers(llm, [prompt])[0] for prompt in PROMPTS]


def test_in_a_batch(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute, enable_prefix_caching=False)
    assert answers(llm, PROMPTS) == alone


@pytest.mark.parametrize("chunk", [7, 16, 50])
def test_at_any_chunk_size(
    smollm2_path: Path, compute: str, alone: list[Answer], chunk: int
) -> None:
    llm = LLM(str(smollm2_path), compute=compute, max_num_batched_tokens=chunk)
    assert answers(llm, PROMPTS[:2]) == alone[:2]


def test_after_preemption(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute, num_blocks=32, enable_prefix_caching=False)
    make_short_sighted(llm.engine.scheduler)
    assert answers(llm, PROMPTS) == alone
    assert llm.engine.stats().totals.preemptions > 0


def test_on_a_cache_hit(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute)
    for _ in range(2):
        assert answers(llm, PROMPTS) == alone
    output = llm.generate(PROMPTS[2], PARAMS)[0]
    assert output.num_cached_tokens == len(output.prompt_token_ids) - 1


def test_with_larger_blocks(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute, block_size=48)
    for _ in range(2):
        assert answers(llm, PROMPTS[:2]) == alone[:2]


def test_in_a_pool_of_one_block(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute, num_blocks=1, block_size=64)
    for _ in range(2):
        assert answers(llm, [PROMPTS[0], PROMPTS[3]]) == [alone[0], alone[3]]
    with pytest.raises(ContextLengthError):
        llm.generate(PROMPTS[1], PARAMS)


def test_with_one_thread(smollm2_path: Path, compute: str, alone: list[Answer]) -> None:
    llm = LLM(str(smollm2_path), compute=compute, num_threads=1)
    assert answers(llm, PROMPTS[:2]) == alone[:2]


def test_completions_of_one_prompt_do_not_disturb_each_other(
    smollm2_path: Path, compute: str
) -> None:
    llm = LLM(str(smollm2_path), compute=compute)
    params = SamplingParams(n=3, temperature=1.0, seed=7, max_tokens=12)
    together = llm.generate(PROMPTS[0], params)[0].outputs
    again = llm.generate(PROMPTS, params)[0].outputs
    assert [o.token_ids for o in together] == [o.token_ids for o in again]
    assert len({tuple(o.token_ids) for o in together}) == 3
