"""The instants of a request's life, on one monotonic clock."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Lifetime:
    """When things happened to a request, in `time.monotonic` seconds; None: not (yet).

    What did happen, happened in the order of the attributes.

    Attributes:
        received_s: its head was read from the socket.
        queued_s: it was parsed, templated and tokenised, and went to the engine.
        scheduled_s: it was first part of a step.
        first_written_s: the first content byte was written to the socket.
        last_written_s: the same for the latest content.
    """

    received_s: float
    queued_s: float | None = None
    scheduled_s: float | None = None
    first_written_s: float | None = None
    last_written_s: float | None = None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: request read → first content byte written."""
        return None if self.first_written_s is None else self.first_written_s - self.received_s

    def queued(self) -> None:
        """Note that the request goes to the engine now."""
        self.queued_s = time.monotonic()

    def written(self) -> float | None:
        """Note that content was written just now; return the seconds since the last time."""
        now = time.monotonic()
        last, self.last_written_s = self.last_written_s, now
        if last is None:
            self.first_written_s = now
            return None
        return now - last
