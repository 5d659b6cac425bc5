"""What goes from the step loop to the reader of one request."""

from __future__ import annotations

import asyncio
from collections import deque

from foreword.engine.outputs import RequestDelta
from foreword.errors import ForewordError


class DeltaStream:
    """One request's deltas on their way to their reader; both ends on the event loop."""

    def __init__(self) -> None:
        self._items: deque[RequestDelta | ForewordError] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: RequestDelta | ForewordError) -> None:
        """Add a delta, or the error that ends the request."""
        self._items.append(item)
        self._arrived.set()

    async def get(self) -> RequestDelta:
        """Wait for the next delta, or raise the error."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        if isinstance(item, ForewordError):
            raise item
        return item
