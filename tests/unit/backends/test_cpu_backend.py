"""The CPU backend as a backend: sampling, blocks, and plans that make no sense."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.gguf_writer import Tensor
from support.tiny import TinyModel
from support.waiting import HANG_S, least_burnt_s

from foreword.backends.cpu.backend import CpuBackend
from foreword.core.params import SamplingParams
from foreword.core.step import SequenceStep, StepPlan
from foreword.errors import BackendError, ConfigError, ModelFileError
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

MODEL = TinyModel("gemma3", layers=6, head_dim=32, heads=2, window=20)
GREEDY = SamplingParams(temperature=0)
NUM_BLOCKS = 12
TESTS = Path(__file__).parents[2]
PROMPT = tuple(range(40))
STEP = SequenceStep(5, PROMPT, 0, (3, 7, 0), draws=(0,), params=GREEDY)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    return GGUFFile.open(MODEL.write(tmp_path_factory.mktemp("model")))


@pytest.fixture
def backend(file: GGUFFile) -> CpuBackend:
    backend = CpuBackend(file, load_spec(file), num_threads=2)
    backend.allocate(NUM_BLOCKS)
    return backend


def last_logits(backend: CpuBackend, step: SequenceStep = STEP) -> np.ndarray:
    return backend.logits(StepPlan((step,)), [len(step.token_ids) - 1])[0]


def test_greedy_takes_the_highest_logit(backend: CpuBackend) -> None:
    (result,) = backend.execute(StepPlan((STEP,))).sequences
    assert result.seq_id == 5
    assert result.token_ids == (int(last_logits(backend).argmax()),)
    assert result.logprobs == ()
    assert result.prompt_logprobs == ()


def test_several_draws_scores_and_silent_sequences_in_one_step(backend: CpuBackend) -> None:
    params = SamplingParams(temperature=1.0, logprobs=2, prompt_logprobs=3)
    drawn = replace(STEP, draws=(0, 1, 2), params=params, seed=-3, score_token_ids=PROMPT[1:])
    silent = SequenceStep(6, (1, 2, 3), 0, (5,))
    greedy = replace(STEP, seq_id=7, block_table=(1, 2, 4))
    first, second, third = backend.execute(StepPlan((silent, drawn, greedy))).sequences
    assert (first.seq_id, first.token_ids, first.prompt_logprobs) == (6, (), ())

    logits = backend.logits(StepPlan((drawn,)), range(40)).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert [entry.token_id for entry in second.logprobs] == list(second.token_ids)
    assert [len(entry.top) for entry in second.logprobs] == [2, 2, 2]
    for entry in second.logprobs:
        assert entry.logprob == pytest.approx(logprobs[-1, entry.token_id], abs=1e-5)
    assert [entry.token_id for entry in second.prompt_logprobs] == list(PROMPT[1:])
    for position, entry in enumerate(second.prompt_logprobs):
        assert entry.logprob == pytest.approx(logprobs[position, entry.token_id], abs=1e-5)
        assert len(entry.top) == 3
    assert third.token_ids == (int(logits[-1].argmax()),)


def test_sampling_is_timed(backend: CpuBackend) -> None:
    silent = SequenceStep(6, (1, 2, 3), 0, (5,))
    assert backend.execute(StepPlan((silent,))).sampling_s == 0
    began_s = time.perf_counter()
    sampling_s = backend.execute(StepPlan((STEP,))).sampling_s
    assert 0 < sampling_s < time.perf_counter() - began_s


def test_bans_bias_and_penalties_reach_the_sampler(backend: CpuBackend) -> None:
    best, second = np.argsort(-last_logits(backend))[:2].tolist()
    for changed in (
        replace(STEP, banned_token_ids=(best,)),
        replace(STEP, params=SamplingParams(temperature=0, logit_bias={best: -100})),
        replace(
            STEP,
            params=SamplingParams(temperature=0, presence_penalty=2, frequency_penalty=2),
            history=(*PROMPT, *[best] * 50),
            num_prompt_tokens=len(PROMPT),
        ),
    ):
        (result,) = backend.execute(StepPlan((changed,))).sequences
        assert result.token_ids == (second,)


def test_blocks_can_be_copied_saved_and_restored(backend: CpuBackend) -> None:
    expected = last_logits(backend)
    rest = SequenceStep(5, PROMPT[39:], 39, (3, 7, 0))

    copied = StepPlan((replace(rest, block_table=(9, 10, 11)),), ((3, 9), (7, 10), (0, 11)))
    np.testing.assert_array_equal(backend.logits(copied, [0])[0], expected)

    saved = [backend.read_block(block) for block in (3, 7, 0)]
    assert [len(data) for data in saved] == [backend.block_bytes] * 3
    for block, data in zip((8, 6, 2), saved, strict=True):
        backend.write_block(block, data)
    moved = replace(rest, block_table=(8, 6, 2))
    np.testing.assert_array_equal(last_logits(backend, moved), expected)


BAD_STEPS = {
    "token id too large": replace(STEP, token_ids=(*PROMPT[:-1], MODEL.vocab)),
    "token id negative": replace(STEP, token_ids=(-1, *PROMPT[1:])),
    "token id beyond 32 bits": replace(STEP, token_ids=(2**40, *PROMPT[1:])),
    "no such block": replace(STEP, block_table=(3, NUM_BLOCKS, 0)),
    "negative block": replace(STEP, block_table=(3, -1, 0)),
    "table too short": replace(STEP, block_table=(3, 7)),
    "negative start": replace(STEP, start=-1),
    "start beyond the table": replace(STEP, start=2**31 - 1),
    "no tokens": replace(STEP, token_ids=()),
    "no params": replace(STEP, params=None),
    "score of no token": replace(STEP, score_token_ids=(1,) * 39 + (MODEL.vocab,)),
    "more scores than tokens": replace(STEP, score_token_ids=(1,) * 41),
    "banned id too large": replace(STEP, banned_token_ids=(MODEL.vocab,)),
    "everything banned": replace(STEP, banned_token_ids=tuple(range(MODEL.vocab))),
}


@pytest.mark.parametrize("step", BAD_STEPS.values(), ids=BAD_STEPS.keys())
def test_plans_that_make_no_sense(backend: CpuBackend, step: SequenceStep) -> None:
    with pytest.raises(BackendError):
        backend.execute(StepPlan((replace(STEP, block_table=(1, 2, 4)), step)))
    backend.execute(StepPlan((STEP,)))  # and it goes on


@pytest.mark.parametrize("copies", [((0, NUM_BLOCKS),), ((-1, 0),)])
def test_copies_of_no_block(backend: CpuBackend, copies: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(BackendError, match="block to copy"):
        backend.execute(StepPlan((), copies))


def test_a_plan_may_hold_copies_alone(backend: CpuBackend) -> None:
    backend.execute(StepPlan((STEP,)))
    assert backend.execute(StepPlan((), ((3, 9),))).sequences == ()
    assert backend.read_block(9) == backend.read_block(3)


def test_blocks_out_of_range(backend: CpuBackend) -> None:
    with pytest.raises(BackendError):
        backend.read_block(NUM_BLOCKS)
    with pytest.raises(BackendError):
        backend.write_block(NUM_BLOCKS, bytes(backend.block_bytes))
    with pytest.raises(BackendError):
        backend.write_block(0, bytes(backend.block_bytes - 1))


def can_make_pages() -> bool:
    major, minor = os.uname().release.split(".")[:2]
    has_huge_pages = Path("/sys/kernel/mm/transparent_hugepage").exists()
    return (int(major), int(minor)) >= (5, 14) and has_huge_pages


def judge_memory(case: str, model: Path) -> None:
    command = [sys.executable, "-m", "support.backend_memory", case, str(model)]
    subprocess.run(command, check=True, timeout=2 * HANG_S, cwd=TESTS)


@pytest.mark.skipif(not can_make_pages(), reason="needs Linux 5.14 with huge pages")
def test_pages_are_made_ahead_and_not_for_all(file: GGUFFile) -> None:
    judge_memory("pages", file.path)


def test_memory_is_made_for_the_logits_that_are_wanted(tmp_path: Path) -> None:
    """P014: a first prompt would pay for more."""
    judge_memory("logits", TinyModel(vocab=1 << 16, layers=1).write(tmp_path))


def test_making_pages_leaves_what_is_written_meanwhile(file: GGUFFile) -> None:
    backend = CpuBackend(file, load_spec(file), num_threads=1)
    count = (100 << 20) // backend.block_bytes
    backend.allocate(count)
    contents = [bytes([number % 251]) * backend.block_bytes for number in range(count)]
    for number in reversed(range(count)):
        backend.write_block(number, contents[number])
    assert all(backend.read_block(number) == contents[number] for number in range(count))


def test_a_step_before_the_pool_is_there(file: GGUFFile) -> None:
    with pytest.raises(BackendError, match="no such block"):
        CpuBackend(file, load_spec(file), num_threads=1).execute(StepPlan((STEP,)))


def test_allocation(file: GGUFFile) -> None:
    backend = CpuBackend(file, load_spec(file), num_threads=1)
    for hopeless in (0, 2**62):
        with pytest.raises(BackendError, match="cannot allocate"):
            backend.allocate(hopeless)
    backend.allocate(2**30 // backend.block_bytes)  # a gigabyte that is not backed by pages
    with pytest.raises(BackendError, match="already"):
        backend.allocate(1)


def test_bad_options(file: GGUFFile) -> None:
    with pytest.raises(ConfigError, match="isa"):
        CpuBackend(file, load_spec(file), isa="sse9")
    with pytest.raises(ConfigError, match="num_threads"):
        CpuBackend(file, load_spec(file), num_threads=-1)


def test_a_spec_of_another_model(file: GGUFFile) -> None:
    with pytest.raises(BackendError, match="sizes"):
        CpuBackend(file, replace(load_spec(file), num_heads=4), num_threads=1)


def test_the_weights_outlive_the_file_object(tmp_path: Path) -> None:
    with GGUFFile.open(MODEL.write(tmp_path)) as file:
        backend = CpuBackend(file, load_spec(file), num_threads=2)
    backend.allocate(NUM_BLOCKS)
    backend.execute(StepPlan((STEP,)))


@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.attn_norm.weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_norm_that_is_not_finite_is_found_at_load(
    tmp_path: Path, name: str, value: float
) -> None:
    tensors = MODEL.tensors()
    weights = np.ones(MODEL.hidden, np.float32)
    weights[5] = value
    tensors[name] = Tensor.f32(weights)
    file = GGUFFile.open(MODEL.write(tmp_path, tensors=tensors))
    with pytest.raises(ModelFileError, match=f"{name}.*not finite"):
        CpuBackend(file, load_spec(file), num_threads=2)


def test_matrices_that_are_not_numbers_fail_the_step_and_nothing_else(tmp_path: Path) -> None:
    """In float32, that is: int8 reads all of them to pack them (test_panels)."""
    tensors = MODEL.tensors()
    shape = tensors["blk.0.ffn_down.weight"].shape
    tensors["blk.0.ffn_down.weight"] = Tensor.f32(np.full(shape, np.nan, np.float32))
    file = GGUFFile.open(MODEL.write(tmp_path, tensors=tensors))
    backend = CpuBackend(file, load_spec(file), num_threads=2)
    backend.allocate(NUM_BLOCKS)
    for _ in range(2):
        with pytest.raises(BackendError):
            backend.execute(StepPlan((STEP,)))


def test_describe(backend: CpuBackend) -> None:
    said = backend.describe()
    assert said["backend"] == "cpu"
    assert said["num_threads"] == 2
    assert said["isa"] in {"avx512_vnni", "avx512", "avx2", "portable"}


def test_an_idle_backend_burns_nothing(backend: CpuBackend) -> None:
    backend.execute(StepPlan((STEP,)))
    assert least_burnt_s(0.05) < 0.005


def test_the_process_exits_with_threads_about(file: GGUFFile) -> None:
    code = (
        "from foreword.backends.cpu.backend import CpuBackend\n"
        "from foreword.models.load import load_spec\n"
        "from foreword.weights.gguf import GGUFFile\n"
        f"file = GGUFFile.open({str(file.path)!r})\n"
        "backends = [CpuBackend(file, load_spec(file), num_threads=8) for _ in range(3)]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


def test_more_threads_than_cores_give_the_same_numbers(file: GGUFFile, backend: CpuBackend) -> None:
    crowd = CpuBackend(file, load_spec(file), num_threads=4 * (os.cpu_count() or 1) + 1)
    crowd.allocate(NUM_BLOCKS)
    for _ in range(20):
        np.testing.assert_array_equal(last_logits(crowd), last_logits(backend))
