"""What happened lately: numbers of the last hour, in slots of a few seconds."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from foreword.metrics.record import RequestRecord
from foreword.metrics.sketch import Sketch

SLOT_S = 5
_KEPT_SLOTS = 3600 // SLOT_S


@dataclass(slots=True)
class Slot:
    """What ended in some span of time.

    Attributes:
        begin_s: where the span begins, in `time.monotonic` seconds.
        statuses: requests by how they ended.
        errors: answers that were errors, by HTTP status.
        ttft_s: time to first token of those that had one.
        ttft_error: how far predictions of TTFT were off, over what came.
        tpot_s: time per output token of those with two or more.
        parts_s: sum over requests of the time in each part of TTFT.
        prompt_tokens: tokens of their prompts.
        cached_tokens: those of them that came from the prefix cache.
        loaded_tokens: those of them that came from a tier below the pool, by its name.
        generated_tokens: tokens generated for them.
    """

    begin_s: float
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[int] = field(default_factory=Counter)
    ttft_s: Sketch = field(default_factory=Sketch)
    ttft_error: Sketch = field(default_factory=Sketch)
    tpot_s: Sketch = field(default_factory=Sketch)
    parts_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    prompt_tokens: int = 0
    cached_tokens: int = 0
    loaded_tokens: Counter[str] = field(default_factory=Counter)
    generated_tokens: int = 0

    def add(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        self.statuses[record.status] += 1
        if record.ttft_s is not None:
            self.ttft_s.add(record.ttft_s)
            for part, seconds in record.parts_s.items():
                self.parts_s[part] += seconds
        error = record.trace.forecast_error
        if error is not None:
            self.ttft_error.add(error)
        if record.tpot_s is not None:
            self.tpot_s.add(record.tpot_s)
        self.prompt_tokens += record.usage.prompt
        self.cached_tokens += record.usage.cached
        self.loaded_tokens.update(record.usage.loaded)
        self.generated_tokens += record.usage.generated

    def merge(self, other: Slot) -> None:
        """Count what ``other`` counted, too."""
        self.statuses.update(other.statuses)
        self.errors.update(other.errors)
        self.ttft_s.merge(other.ttft_s)
        self.ttft_error.merge(other.ttft_error)
        self.tpot_s.merge(other.tpot_s)
        for part, seconds in other.parts_s.items():
            self.parts_s[part] += seconds
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.loaded_tokens.update(other.loaded_tokens)
        self.generated_tokens += other.generated_tokens


class RollingStats:
    """Keeps the last hour. Memory does not grow with the number of requests.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: deque[Slot] = deque(maxlen=_KEPT_SLOTS)

    def written(self, gap_s: float) -> None:
        """Take no notice: a request counts when it is over."""

    def error(self, status: int) -> None:
        """Count an answer that was an error."""
        self._latest.errors[status] += 1

    def ended(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        self._latest.add(record)

    @property
    def _latest(self) -> Slot:
        begin_s = self._clock() // SLOT_S * SLOT_S
        if not self._slots or self._slots[-1].begin_s != begin_s:
            self._slots.append(Slot(begin_s))
        return self._slots[-1]

    def slots(self, window_s: int, slot_s: int) -> list[Slot]:
        """Return the last ``window_s`` seconds in spans of ``slot_s``, oldest first.

        The last span is the one that runs. Both are multiples of `SLOT_S`; spans in which nothing
        ended are there too.
        """
        last_s = self._clock() // slot_s * slot_s
        spans = [Slot(last_s - ago) for ago in range(window_s - slot_s, -1, -slot_s)]
        for slot in self._slots:
            at = int((slot.begin_s - spans[0].begin_s) // slot_s)
            if at >= 0:
                spans[at].merge(slot)
        return spans


def total(slots: Iterable[Slot]) -> Slot:
    """Return the sum of at least one slot."""
    first, *rest = slots
    merged = Slot(first.begin_s)
    for slot in (first, *rest):
        merged.merge(slot)
    return merged
