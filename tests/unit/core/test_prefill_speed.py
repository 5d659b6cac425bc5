"""The measured speed of prompts, and what the prefix cache saved by it."""

from __future__ import annotations

import pytest

from foreword.core.prefill_speed import PrefillSpeed
from foreword.core.trace import RequestTrace


def test_it_follows_what_is_measured_and_ignores_small_steps() -> None:
    speed = PrefillSpeed()
    speed.observe(63, seconds=1.0)
    assert speed.seconds(100) is None
    speed.observe(1000, seconds=1.0)
    assert speed.seconds(100) == pytest.approx(0.1)
    for _ in range(50):
        speed.observe(2000, seconds=1.0)
    assert speed.seconds(100) == pytest.approx(0.05, rel=0.01)


def test_waiting_for_blocks_is_taken_off_what_was_saved() -> None:
    assert RequestTrace().saved_s is None
    assert RequestTrace(recompute_s=0.5, load_wait_s=0.2).saved_s == pytest.approx(0.3)
    assert RequestTrace(recompute_s=0.5, load_wait_s=0.9).saved_s == 0.0
