"""What a chat template may use up."""

from __future__ import annotations

import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from foreword.errors import TemplateError


class Budget:
    """Time and size limits of one run of a template.

    Args:
        seconds: processor time of this thread.
        chars: the size of any one value (see `size`), and of all output together.
    """

    def __init__(self, seconds: float, chars: int) -> None:
        self._seconds = seconds
        self._chars = chars
        self._emitted = 0
        self._wall = time.monotonic() + seconds
        self._cpu = time.thread_time() + seconds

    def tick(self) -> None:
        """Raise `TemplateError` once the time is used up."""
        # The wall clock is the cheaper one to read, but may have run on without this thread.
        if time.monotonic() > self._wall and time.thread_time() > self._cpu:
            raise TemplateError(f"the chat template ran for more than {self._seconds:g} s")

    def reserve(self, chars: int) -> None:
        """Raise `TemplateError` if a value of this size may not be made."""
        if chars > self._chars:
            raise TemplateError(
                f"the chat template made a value of more than {self._chars} characters"
            )

    def emit(self, chars: int) -> None:
        """Count output; raise `TemplateError` at the limit."""
        self._emitted += chars
        if self._emitted > self._chars:
            raise TemplateError(f"the chat template wrote more than {self._chars} characters")

    def weigh(self, value: Any) -> int:
        """The `size` of a value, or `TemplateError` where it exceeds the limit."""
        weight = size(value, self._chars)
        self.reserve(weight)
        return weight


def size(value: Any, limit: float = float("inf")) -> int:
    """About how many characters a value has when written out; counting ends past ``limit``.

    A list that holds one object many times counts it many times, as writing it out would.
    """
    total = 0
    waiting = [(value, 1)]
    while waiting and total <= limit:
        item, depth = waiting.pop()
        total += depth
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, int):
            total += item.bit_length() // 3
        elif isinstance(item, Mapping):
            waiting += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, (list, tuple, KeysView, ValuesView, ItemsView)):
            waiting += [(part, depth + 1) for part in item]
    return total
