"""The instants of a request's life outside the engine, on one monotonic clock."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Lifetime:
    """When things happened to a request, in `time.monotonic` seconds; None: not (yet).

    What did happen, happened in the order of the attributes. What the engine did between
    ``tokenised_s`` and ``delivered_s`` is in the request's `RequestTrace`.

    Attributes:
        received_s: its head was read from the socket.
        read_s: its body was read to the end.
        parsed_s: the body was decoded and checked.
        templated_s: the chat template had been applied; None where there is none to apply.
        tokenised_s: the last of its prompts was token ids.
        delivered_s: what the first content is made of came back from the engine.
        first_written_s: the first content byte was written to the socket.
        last_written_s: the same for the latest content.
        ended_s: it was over, well or not.
    """

    received_s: float
    read_s: float | None = None
    parsed_s: float | None = None
    templated_s: float | None = None
    tokenised_s: float | None = None
    delivered_s: float | None = None
    first_written_s: float | None = None
    last_written_s: float | None = None
    ended_s: float | None = None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: request read → first content byte written."""
        return None if self.first_written_s is None else self.first_written_s - self.received_s

    @property
    def e2e_s(self) -> float | None:
        """Request read → latest content byte written."""
        return None if self.last_written_s is None else self.last_written_s - self.received_s

    def written(self) -> float | None:
        """Note that content was written just now; return the seconds since the last time."""
        now = time.monotonic()
        last, self.last_written_s = self.last_written_s, now
        if last is None:
            self.first_written_s = now
            return None
        return now - last
