"""What was active on each side, as its responses say: proof that two sides were two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from foreword.bench.load.record import RequestRecord

_SAME = 0.02  # means that differ by less are taken for equal: chunks depend on timing

COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens")
"""What any server says; the rest is what was active."""

Evidence = dict[str, str | float]
"""By name: the mean of a number over requests, or the words that were seen."""


def gather(records: Iterable[RequestRecord]) -> Evidence:
    """Sum up ``timing.active`` and the usage of a side's successful requests."""
    numbers: dict[str, list[float]] = defaultdict(list)
    words: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for name, value in _facts(record):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[name].append(value)
            else:
                words[name].add(str(value))
    means: Evidence = {name: sum(values) / len(values) for name, values in numbers.items()}
    return means | {name: ", ".join(sorted(seen)) for name, seen in words.items()}


def differing(a: Evidence, b: Evidence) -> list[str]:
    """Name what differs between two sides."""
    return [name for name in a | b if not _alike(a.get(name), b.get(name))]


def _facts(record: RequestRecord) -> Iterator[tuple[str, Any]]:
    if not record.ok:
        return
    counts = ((name, getattr(record, name)) for name in COUNTS)
    yield from ((name, count) for name, count in counts if count is not None)
    yield from _flat((record.timing or {}).get("active") or {}, ())


def _flat(facts: Mapping[str, Any], path: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*path, name))
        elif value is not None:
            yield ".".join((*path, name)), value


def _alike(a: str | float | None, b: str | float | None) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= _SAME * max(abs(a), abs(b))
    return a == b
