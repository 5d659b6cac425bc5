"""Telling a loop that is stuck from one that is busy, or idle."""

from __future__ import annotations

import sys
import threading
import time
import traceback


class Progress:
    """Notes when a loop last got on with its work, for other threads to look at.

    A loop is stuck where there is work and it has not got on for ``patience_s`` seconds, whether a
    turn of it does not end or none begins. One that has nothing to do is never stuck.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._since_s: float | None = None

    def work_came(self) -> None:
        """Note that there is something to do, if there was nothing before."""
        if self._since_s is None:
            self.made()

    def made(self) -> None:
        """Note that the loop has begun or ended a turn."""
        self._since_s = time.monotonic()

    def nothing_to_do(self) -> None:
        """Note that all work is done."""
        self._since_s = None

    @property
    def stuck(self) -> bool:
        """Whether the loop has not got on for too long."""
        since_s = self._since_s
        return since_s is not None and time.monotonic() - since_s > self.patience_s


def thread_stacks() -> str:
    """Where each thread is, as tracebacks."""
    frames = sys._current_frames()
    return "\n".join(
        f"thread {thread.name}:\n{''.join(traceback.format_stack(frames[thread.ident]))}"
        for thread in threading.enumerate()
        if thread.ident in frames
    )
