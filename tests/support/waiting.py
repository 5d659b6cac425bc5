"""Waiting for what other threads and processes do. How long that takes proves nothing."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

HANG_S = 60.0
"""What has not happened by then, however slow and busy the machine is, never will."""


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until ``condition`` holds."""
    deadline_s = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {HANG_S} s"
        time.sleep(0.002)


def least_burnt_s(window_s: float) -> float:
    """Processor time of this process in the idlest of ten stretches of ``window_s``."""

    def burnt_s() -> float:
        before_s = time.process_time()
        time.sleep(window_s)
        return time.process_time() - before_s

    return min(burnt_s() for _ in range(10))


class StepGate:
    """Holds an engine's steps: as ``on_step`` of a scripted engine.

    Args:
        steps: how many may pass before the next is held.
    """

    def __init__(self, steps: float = 0) -> None:
        self._left = steps
        self._changed = threading.Condition()

    def __call__(self, plan: object) -> None:
        del plan
        with self._changed:
            assert self._changed.wait_for(lambda: self._left > 0, HANG_S), "nobody opens the gate"
            self._left -= 1

    def let(self, steps: float) -> None:
        """Let so many steps pass from now on; 0 closes the gate."""
        with self._changed:
            self._left = steps
            self._changed.notify_all()

    def open(self) -> None:
        """Let all pass."""
        self.let(math.inf)
