from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from foreword.bench import eval as eval_module
from foreword.bench.divergence import Divergence, compare
from foreword.bench.eval import EvalReport, EvalSettings, Subject, run_eval
from foreword.bench.table import eval_table
from foreword.core.step import StepPlan
from foreword.errors import BackendError, ConfigError

VOCAB = 11


class FakeBackend:
    """Logits that depend on the token and its position; only a sequence in order is computed."""

    block_bytes = 1

    def __init__(self, noise: float = 0.0, vocab_size: int = VOCAB) -> None:
        self.vocab_size = vocab_size
        self.noise = noise
        self.computed = 0
        self.most_rows = 0

    def logits(self, plan: StepPlan, rows: Sequence[int]) -> np.ndarray:
        (step,) = plan.sequences
        assert step.start in (0, self.computed)
        self.computed = step.start + len(step.token_ids)
        assert len(step.block_table) * 16 >= self.computed
        assert list(rows) == list(range(len(step.token_ids)))
        self.most_rows = max(self.most_rows, len(rows))
        made = []
        for position, token in enumerate(step.token_ids, step.start):
            rng = np.random.default_rng([position, token])
            logits = rng.standard_normal(self.vocab_size)
            made.append(logits + self.noise * rng.standard_normal(self.vocab_size))
        return np.array(made, np.float32)

    def describe(self) -> dict[str, Any]:
        return {"noise": self.noise}

    def allocate(self, num_blocks: int) -> None: ...
    def execute(self, plan: StepPlan) -> Any: ...
    def read_block(self, block: int) -> bytes:
        return b""

    def write_block(self, block: int, data: bytes) -> None: ...


def evaluated(noise: float, windows: list[list[int]]) -> EvalReport:
    return run_eval(
        Subject.of(FakeBackend(), {}),
        Subject.of(FakeBackend(noise), {"compute": "noisy"}),
        windows,
        EvalSettings(windows=len(windows), window_tokens=len(windows[0])),
        model="fake",
        text="made up",
    )


def windows_of(*lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, VOCAB, n).tolist() for n in lengths]


def test_numbers_that_can_be_worked_out_by_hand() -> None:
    sure, even = [np.log(0.5), np.log(0.25), np.log(0.25)], [0.0, 0.0, 0.0]
    result = compare(
        np.array([sure, even], np.float32) + 7,  # a constant changes no distribution
        np.array([even, even], np.float32),
        np.array([0, 2]),
    )
    divergence = 0.5 * np.log(1.5) + 2 * 0.25 * np.log(0.75)
    np.testing.assert_allclose(result.kl, [divergence, 0], atol=1e-7)
    np.testing.assert_allclose(result.reference_nll, [np.log(2), np.log(3)], atol=1e-6)
    np.testing.assert_allclose(result.nll, [np.log(3)] * 2)
    assert result.reference_perplexity == pytest.approx(6**0.5, rel=1e-6)
    assert result.perplexity == pytest.approx(3)
    assert result.perplexity_change == pytest.approx(3 / 6**0.5 - 1, rel=1e-6)
    half_gap = np.log(1.5) / 2  # of two differences, ln 1.5 and 0
    assert result.perplexity_change_error == pytest.approx(half_gap / 2**0.5, rel=1e-6)
    assert result.mean_kl == pytest.approx(divergence / 2, abs=1e-7)
    assert result.mean_kl_error == pytest.approx(divergence / 2 / 2**0.5, abs=1e-7)
    assert result.same_top_share == 1.0  # among equals the first counts


def test_rows_that_do_not_fit_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 9, 50)).astype(np.float32)
    targets = rng.integers(0, 50, 9)
    whole = compare(a, b, targets)
    monkeypatch.setattr("foreword.bench.divergence._CELLS", 120)
    assert compare(a, b, targets).to_json() == whole.to_json()
    assert whole.same_top_share < 1


def test_a_configuration_does_not_differ_from_itself() -> None:
    result = evaluated(0.0, windows_of(40, 33)).result
    assert result.tokens == 39 + 32
    assert result.mean_kl == result.perplexity_change == 0.0
    assert result.same_top_share == 1.0


def test_more_noise_is_more_divergence() -> None:
    small, large = (evaluated(noise, windows_of(400)).result for noise in (0.05, 0.5))
    assert 0 < small.mean_kl < large.mean_kl
    assert small.mean_kl == pytest.approx(0.05**2 / 2 * (1 - 1 / VOCAB), rel=0.3)  # to second order
    assert 1 > small.same_top_share > large.same_top_share


def test_memory_is_bounded_by_cutting_windows_not_by_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = windows_of(40, 19)
    whole = evaluated(0.3, windows).result
    monkeypatch.setattr(eval_module, "_LOGIT_BYTES", 7 * 4 * VOCAB)
    backend = FakeBackend(0.3)
    cut = run_eval(
        Subject.of(FakeBackend(), {}),
        Subject.of(backend, {}),
        windows,
        EvalSettings(),
        model="",
        text="",
    ).result
    assert backend.most_rows == 7
    np.testing.assert_array_equal(cut.kl, whole.kl)
    np.testing.assert_array_equal(cut.nll, whole.nll)


def test_windows_are_spread_over_the_text_and_begin_as_prompts_do() -> None:
    settings = EvalSettings(windows=3, window_tokens=5)
    assert settings.cut(range(100, 130), None) == [
        [100, 101, 102, 103, 104],
        [110, 111, 112, 113, 114],
        [120, 121, 122, 123, 124],
    ]
    assert settings.cut(range(100, 112), 1)[1] == [1, 104, 105, 106, 107]
    with pytest.raises(ConfigError, match="text's 14"):
        settings.cut(range(14), None)


@pytest.mark.parametrize(("option", "value"), [("windows", 0), ("window_tokens", 1)])
def test_settings_that_measure_nothing_are_refused(option: str, value: int) -> None:
    with pytest.raises(ConfigError) as caught:
        EvalSettings(**{option: value})
    assert caught.value.option == option


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(BackendError, match="no logits"):
        Subject.of(object(), {})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="11 and 12"):
        run_eval(
            Subject.of(FakeBackend(), {}),
            Subject.of(FakeBackend(vocab_size=12), {}),
            [[1, 2]],
            EvalSettings(),
            model="",
            text="",
        )
    with pytest.raises(BackendError, match="not finite"):
        evaluated(float("nan"), windows_of(3))


def test_the_report_is_json_and_the_table_shows_it() -> None:
    report = evaluated(0.5, windows_of(30))
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["schema"] == "foreword.eval/1"
    assert data["candidate"] == {"options": {"compute": "noisy"}, "backend": {"noise": 0.5}}
    assert data["result"]["tokens"] == 29
    assert isinstance(report.result, Divergence)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(eval_table(report))
    assert f"{data['result']['kl_mean']:.5f}" in captured.get()
    assert f"{data['result']['same_top_share']:.2%}" in captured.get()
