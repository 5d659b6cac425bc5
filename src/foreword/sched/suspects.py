"""Who makes a step fail."""

from __future__ import annotations

from foreword.sched.batch import Batch


class Suspects:
    """Tries failed steps again in halves, until whoever makes them fail is alone.

    So one bad request among n costs about 2·log2(n) short steps and nobody else's answer, however
    often it comes. A part of a step is the same work in the same blocks: what the failed step has
    written is written again.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Batch, list[str]]] = []  # of each batch, some requests

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, failed: Batch) -> list[str]:
        """Take in that a batch failed.

        Returns:
            The requests that cannot be tried again: the only one in it; and those that begin with a
            copy of a block which the others may have overwritten.
        """
        names = failed.request_ids
        if len(names) <= 1:
            return names
        lost = failed.lost_request_ids
        names = [name for name in names if name not in lost]
        half = len(names) // 2
        self._parts += [(failed, names[half:]), (failed, names[:half])]
        return lost

    def next(self) -> Batch | None:
        """The next part to be tried, without all else; None where none is left."""
        while self._parts:
            failed, names = self._parts.pop()
            part = failed.part(names)
            if part.sequences:
                return part
        return None
