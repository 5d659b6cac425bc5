"""Replay of recorded traffic: arrival times, lengths and shared prefixes, without its words."""

from __future__ import annotations

import gzip
import json
import math
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import ClassVar

from foreword.bench.load.corpus import Passages
from foreword.bench.load.plan import Message, Passage
from foreword.bench.load.workloads import Draft, Recipe
from foreword.config.option import option
from foreword.errors import ConfigError

BLOCK_TOKENS = 512
"""Tokens of a block that a hash id stands for, in the traces published with Mooncake (FAST'25)."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace; times in seconds, lengths in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[object, ...]


class BadRowError(ValueError):
    """A line that is no request; the message is the reason, the same for all of a kind."""


@dataclass(frozen=True)
class Trace(Recipe):
    """A trace file in the format of the Mooncake paper, plain or gzip.

    A prompt is made block by block from its hash ids: prompts that shared a prefix share one
    again, cut at blocks. Lines that are no request are left out and counted.

    Raises:
        ConfigError: a scale that cannot work.
    """

    name: ClassVar[str] = "trace"
    path: str = option("", "The file: one JSON object a line.")
    length_scale: float = option(1.0, "Factor for all lengths; 0.0625 makes blocks of 32 tokens.")
    time_scale: float = option(1.0, "Factor for the time between requests; 2 halves the load.")
    max_prompt_tokens: int | None = option(None, "Cut longer prompts to this, after scaling.")
    arrivals: str = option(
        "recorded",
        "recorded, or spread: a recorder whose clock ticks in seconds notes many requests at one "
        "time; they come evenly over the time to the next.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arrivals not in ("recorded", "spread"):
            raise ConfigError("arrivals", f"must be recorded or spread, not {self.arrivals!r}")

    def drafts(self, shape: random.Random, passages: Passages) -> Iterator[Draft]:
        """Give the requests in the order of their times.

        Raises:
            ConfigError: the file cannot be read, or has no request.
        """
        del shape
        block_tokens = self._scaled(BLOCK_TOKENS)
        rows = self._read.rows if self.arrivals == "recorded" else spread(self._read.rows)
        for row in rows:
            tokens = self._scaled(row.prompt_tokens)
            if self.max_prompt_tokens is not None:
                tokens = min(tokens, self.max_prompt_tokens)
            begins = range(0, tokens, block_tokens)
            prompt = Passage.joined(
                *(
                    passages.keyed(hash_id, min(block_tokens, tokens - begin))
                    for hash_id, begin in zip(row.hash_ids, begins, strict=False)
                )
            )
            at_s = (row.at_s - rows[0].at_s) * self.time_scale
            yield Draft("trace", (Message("user", prompt),), self._scaled(row.output_tokens), at_s)

    def notes(self) -> tuple[str, ...]:
        """Say how many lines were left out, and why."""
        left_out = self._read.left_out
        if not left_out:
            return ()
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        return (f"{left_out.total()} lines of {self.path} were left out: {reasons}",)

    def _scaled(self, tokens: int) -> int:
        return max(1, round(tokens * self.length_scale))

    @cached_property
    def _read(self) -> TraceFile:
        return read_trace(Path(self.path))


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a trace file has: at least one row, by time, and reasons for leaving lines out."""

    rows: tuple[TraceRow, ...]
    left_out: Counter[str]


def read_trace(path: Path) -> TraceFile:
    """Read a trace.

    Raises:
        ConfigError: it cannot be read, or none of its lines is a request.
    """
    rows: list[TraceRow] = []
    left_out: Counter[str] = Counter()
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
            for line in filter(str.strip, lines):
                try:
                    rows.append(_row(line))
                except BadRowError as error:
                    left_out[str(error)] += 1
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError("trace", f"{path} cannot be read: {error}") from error
    if not rows:
        raise ConfigError("trace", f"{path} has no request in it ({dict(left_out) or 'empty'})")
    return TraceFile(tuple(sorted(rows, key=lambda row: row.at_s)), left_out)


def spread(rows: Sequence[TraceRow]) -> tuple[TraceRow, ...]:
    """Move rows of one recorded time evenly over the time to the next; the last ones stay."""
    at_once = [list(group) for _, group in groupby(rows, key=lambda row: row.at_s)]
    moved: list[TraceRow] = []
    for group, following in pairwise([*at_once, at_once[-1][:1]]):
        gap_s = (following[0].at_s - group[0].at_s) / len(group)
        moved += [replace(row, at_s=row.at_s + i * gap_s) for i, row in enumerate(group)]
    return tuple(moved)


def _row(line: str) -> TraceRow:
    try:
        fields = json.loads(line)
        at_ms, hash_ids = float(fields["timestamp"]), tuple(fields["hash_ids"])
        prompt_tokens, output_tokens = int(fields["input_length"]), int(fields["output_length"])
    except json.JSONDecodeError:
        raise BadRowError("no JSON") from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadRowError("without a timestamp, lengths and hash ids") from None
    if not 0 <= at_ms < math.inf:
        raise BadRowError("with a time that is negative or none")
    if prompt_tokens < 1 or output_tokens < 1:
        raise BadRowError("with a length below 1")
    if len(hash_ids) * BLOCK_TOKENS < prompt_tokens:
        raise BadRowError("with fewer hash ids than blocks")
    return TraceRow(at_ms / 1e3, prompt_tokens, output_tokens, hash_ids)
