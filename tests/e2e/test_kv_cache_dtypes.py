"""The real model with keys and values in fewer bits: the same answer however it is computed."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

import pytest
from support.scheduling import make_short_sighted

from foreword import LLM, SamplingParams

PARAMS = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True, logprobs=1)
TEXT = pydoc_data.topics.topics["assignment"]
PROMPTS = [TEXT[start : start + length] for start, length in [(0, 60), (200, 500), (0, 75)]]

Answer = list[tuple[int, float]]


def answers(llm: LLM, prompts: list[str] = PROMPTS) -> list[Answer]:
    return [
        [(entry.token_id, entry.logprob) for entry in output.outputs[0].logprobs]
        for output in llm.generate(prompts, PARAMS)
    ]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_equal_alone_batched_chunked_preempted_and_cached(smollm2_path: Path, dtype: str) -> None:
    model = str(smollm2_path)
    llm = LLM(model, kv_cache_dtype=dtype)
    alone = [answers(llm, [prompt])[0] for prompt in PROMPTS]
    assert answers(llm) == alone, "from the cache"
    assert llm.engine.stats().totals.cached_prompt_tokens > 0
    uncached = LLM(model, kv_cache_dtype=dtype, enable_prefix_caching=False)
    assert answers(uncached) == alone, "in a batch"
    chunked = LLM(model, kv_cache_dtype=dtype, max_num_batched_tokens=13)
    assert answers(chunked) == alone, "in chunks"
    tight = LLM(
        model,
        kv_cache_dtype=dtype,
        num_blocks=13,
        enable_prefix_caching=False,
        scheduling_policy="fcfs",  # fills each step, so that blocks run out
    )
    make_short_sighted(tight.engine.scheduler)
    assert answers(tight) == alone, "after preemption"
    assert tight.engine.stats().totals.preemptions > 0


def test_types_differ(smollm2_path: Path) -> None:
    exact, half, int8 = (
        answers(LLM(str(smollm2_path), kv_cache_dtype=dtype), PROMPTS[1:2])
        for dtype in ("float32", "float16", "int8")
    )
    assert exact != half != int8
