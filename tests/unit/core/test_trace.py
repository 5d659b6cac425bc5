"""What a request's trace tells."""

from __future__ import annotations

import pytest

from foreword.core.trace import RequestTrace


def test_waiting_for_blocks_is_taken_off_what_was_saved() -> None:
    assert RequestTrace().saved_s == 0.0
    assert RequestTrace(recompute_s=0.5, load_wait_s=0.2).saved_s == pytest.approx(0.3)
    assert RequestTrace(recompute_s=0.5, load_wait_s=0.9).saved_s == 0.0
