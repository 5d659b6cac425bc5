"""The prefix cache and all its tiers under random load. `make soak` runs it for ten minutes."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from support.scripted import tiny_engine
from support.soak import Case, Load, SecretPrompts, damage, fixed, resident_bytes, until

from foreword import LLM, SamplingParams
from foreword.core.step import SequenceStep, StepPlan
from foreword.engine.engine import Engine
from foreword.tiers.disk import DiskTier
from foreword.tiers.memory import MemoryTier

SOAK_S = float(os.environ.get("SOAK_S", "0"))  # 0: as many steps as the suite can bear
MOST_GROWTH_BYTES = 64 << 20


@pytest.mark.timeout(SOAK_S + 120)
def test_no_answer_ever_holds_what_belongs_to_another(tmp_path: Path) -> None:
    rng = random.Random(5)
    secrets = SecretPrompts(rng)
    now_s = 0.0  # a clock on which computing is slow and disks are fast

    def on_step(plan: StepPlan) -> None:
        nonlocal now_s
        now_s += plan.num_tokens / 1000

    def next_token(history: Sequence[int], step: SequenceStep, draw: int) -> int:
        return secrets.answer(tuple(history), step.num_prompt_tokens, draw)

    def start() -> Engine:
        tiers = [MemoryTier(20_000), DiskTier(tmp_path, 500_000)]
        return tiny_engine(
            num_blocks=200, on_step=on_step, clock=lambda: now_s, tiers=tiers, next_token=next_token
        )

    loads = [Load(start, secrets.draw, concurrency=64, rng=rng) for _ in range(2)]
    for number in until(SOAK_S) if SOAK_S else range(250):
        for load in loads:
            load.step()
        if number % 20 == 0:
            damage(tmp_path, rng)
        if number % 50 == 49:
            rng.choice(loads).restart()
        if number == 100:
            gc.collect()
            settled_bytes = resident_bytes()
    for load in loads:
        load.drain()
        load.close()
        assert load.num_answered > 50
        assert load.num_cancelled > 5
        assert load.cached_tokens > load.loaded_tokens > 0
    gc.collect()
    assert resident_bytes() - settled_bytes < MOST_GROWTH_BYTES
    print({name: value for name, value in vars(loads[0]).items() if isinstance(value, int)})


@pytest.mark.model
@pytest.mark.timeout(SOAK_S + 120)
def test_the_real_model_answers_as_if_alone(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)  # what is there is waited for
    options = {"model": str(smollm2_path), "max_model_len": 512}
    lone = LLM(**options, enable_prefix_caching=False)  # type: ignore[arg-type]
    tokens = lone.tokenizer.encode(topics["assignment"])[:200]
    prompts = [[*tokens[:cut], 100 + cut] for cut in (10, 15, 16, 17, 60, 63, 130, 200)]
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    outputs = lone.generate(prompts, params)
    cases = [
        Case(prompt, "", [output.outputs[0].token_ids])
        for prompt, output in zip(prompts, outputs, strict=True)
    ]

    def start() -> Engine:
        disk = str(tmp_path)
        return LLM(**options, num_blocks=40, kv_disk_path=disk).engine  # type: ignore[arg-type]

    load = Load(start, fixed(cases), concurrency=8, rng=random.Random(6))
    for number in until(SOAK_S / 5) if SOAK_S else range(60):
        load.step()
        if number % 40 == 39:
            load.restart()
    load.drain()
    load.close()
    assert load.num_answered > 5
    assert load.cached_tokens > 0
