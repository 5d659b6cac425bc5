"""Blocks that went to disk and came back: the same numbers, whatever was computed where."""

from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics

import pytest

from foreword import LLM, SamplingParams

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("patience")]

TEXT = topics["assignment"]
PARAMS = SamplingParams(temperature=0.0, max_tokens=6, logprobs=3)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a block that is there is waited for."""
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)


def serve(model: Path, folder: Path | None, lengths: list[int], **options: str) -> list[object]:
    """Answers with every log-probability, and how much of each prompt was in the cache."""
    disk = None if folder is None else str(folder)
    llm = LLM(str(model), kv_disk_path=disk, num_blocks=200, **options)
    tokens = llm.tokenizer.encode(TEXT)
    answers = []
    for start, length in enumerate(lengths):
        [output] = llm.generate([tokens[start : start + length]], PARAMS)
        [completion] = output.outputs
        answers.append((completion.text, completion.logprobs, output.num_cached_tokens))
    llm.close()
    return answers


@pytest.mark.parametrize(
    "options",
    [{}, {"compute": "float32"}, {"kv_cache_dtype": "float16"}],
    ids=["int8", "float32", "float16"],
)
def test_a_restart_finds_what_was_computed(
    smollm2_path: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    lengths = [16 * 20 - 1, 16 * 20, 16 * 20 + 1]
    alone = serve(smollm2_path, None, lengths, **options)
    cold = serve(smollm2_path, tmp_path, lengths, **options)
    warm = serve(smollm2_path, tmp_path, lengths, **options)
    assert [answer[:2] for answer in alone] == [answer[:2] for answer in cold]  # type: ignore[index]
    assert [answer[:2] for answer in alone] == [answer[:2] for answer in warm]  # type: ignore[index]
    assert [answer[2] for answer in warm] == [  # type: ignore[index]
        (length - 1) // 16 * 16 for length in lengths
    ]


def test_another_arithmetic_finds_nothing(smollm2_path: Path, tmp_path: Path) -> None:
    serve(smollm2_path, tmp_path, [320])
    for options in ({"compute": "float32"}, {"kv_cache_dtype": "float16"}, {"isa": "avx2"}):
        [(_, _, cached)] = serve(smollm2_path, tmp_path, [320], **options)  # type: ignore[misc]
        assert cached == 0


@pytest.mark.gemma
def test_models_share_a_folder_and_no_block(
    smollm2_path: Path, gemma_path: Path, tmp_path: Path
) -> None:
    def cached(model: Path) -> object:
        [(_, _, cached)] = serve(model, tmp_path, [100])  # type: ignore[misc]
        return cached

    assert [cached(path) for path in (smollm2_path, gemma_path)] == [0, 0]
    assert [cached(path) for path in (smollm2_path, gemma_path)] == [96, 96]
