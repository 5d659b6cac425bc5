"""The latest requests of a server."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from foreword.metrics.record import RequestRecord


class RequestHistory:
    """Keeps the latest requests, running ones too, by id and in the order of their coming.

    Args:
        limit: how many; the oldest is forgotten for the next. 0: none.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: OrderedDict[str, RequestRecord] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: RequestRecord) -> None:
        """Keep a request that begins."""
        self._records[record.id] = record
        if len(self._records) > self._limit:
            self._records.popitem(last=False)

    def discard(self, request_id: str) -> None:
        """Forget a request that turned out to be none."""
        self._records.pop(request_id, None)

    def get(self, request_id: str) -> RequestRecord | None:
        """The request of that id; None if it is unknown or forgotten."""
        return self._records.get(request_id)

    def latest(self, count: int, before: str | None = None) -> list[RequestRecord]:
        """Up to ``count`` requests, the youngest first.

        Args:
            before: only those that came before the request of this id.

        Raises:
            KeyError: ``before`` is unknown or forgotten.
        """
        youngest_first = reversed(self._records.values())
        if before is not None:
            sought = self._records[before]
            for record in youngest_first:
                if record is sought:
                    break
        return list(islice(youngest_first, count))
