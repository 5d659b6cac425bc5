"""What wants to know of requests: metrics, statistics, traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from foreword.metrics.record import RequestRecord


class RequestObserver(Protocol):
    """Told of every request, on the event loop; to be quick about it."""

    def written(self, gap_s: float) -> None:
        """Content was written to a stream, ``gap_s`` seconds after the content before it."""

    def error(self, status: int) -> None:
        """A request of any kind was answered with an error of this HTTP status."""

    def ended(self, record: RequestRecord) -> None:
        """Nothing more will be written for a request: it was answered, aborted, or it failed."""
