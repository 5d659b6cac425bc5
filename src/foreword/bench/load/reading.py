"""What the bytes of a streamed completion mean, and when each token was there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from foreword.bench.load.record import ErrorKind, Failure

# Where chunks carry what a user reads; reasoning models call what they think by other names.
_TEXTS = ("content", "reasoning_content", "reasoning")


class EventSplitter:
    """Cuts server-sent events out of a body that comes in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give the data of each event that ``data`` completes."""
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        return filter(None, map(_event_data, events))

    def flush(self) -> Iterator[bytes]:
        """Give what lacks its empty line: some servers end so."""
        return self.feed(b"\n\n")


def _event_data(event: bytes) -> bytes:
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)


class StreamReading:
    """Reads a stream of completion chunks: ``feed`` what came, then look at the attributes.

    A chunk that only carries a role, or an empty text, is no content.

    Attributes:
        times_s: when each piece of text was there.
        prompt_tokens, cached_tokens, completion_tokens: the server's last counts, or None.
        timing: the server's own account, from a member ``timing``.
    """

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.timing: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.failure: Failure | None = None
        self._splitter = EventSplitter()
        self._tokens_so_far: list[int | None] = []

    def feed(self, time_s: float, data: bytes) -> None:
        """Read what arrived at ``time_s``."""
        self._read(time_s, self._splitter.feed(data))

    def end(self, time_s: float) -> None:
        """Read what is left, once no more will come."""
        self._read(time_s, self._splitter.flush())

    @property
    def complete(self) -> bool:
        """Whether the server brought it to an end of its own choice."""
        return self.done or self.finish_reason is not None

    @property
    def token_counts(self) -> tuple[int, ...] | None:
        """Tokens in each piece, where every piece came with the server's count so far."""
        totals = [total for total in self._tokens_so_far if total is not None]
        if len(totals) < len(self._tokens_so_far):
            return None
        return tuple(now - before for before, now in zip([0, *totals], totals, strict=False))

    def _read(self, time_s: float, events: Iterator[bytes]) -> None:
        for event in events:
            if self.done or self.failure is not None:
                return
            if event == b"[DONE]":
                self.done = True
                continue
            try:
                chunk = json.loads(event.decode())
                if not isinstance(chunk, dict):
                    raise ValueError("not an object")
                self._chunk(time_s, chunk)
            except UnicodeDecodeError as error:
                self.failure = Failure(ErrorKind.BAD_BODY, f"an event is not UTF-8: {error}")
            except (ValueError, AttributeError, TypeError) as error:
                self.failure = Failure(ErrorKind.BAD_BODY, f"an event is no chunk: {error}")

    def _chunk(self, time_s: float, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            self.failure = Failure(ErrorKind.SERVER_ERROR, _message(chunk["error"]))
            return
        self.timing = chunk.get("timing") or self.timing
        usage = chunk.get("usage")
        if usage:
            self.prompt_tokens = usage.get("prompt_tokens")
            self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            self.completion_tokens = usage.get("completion_tokens")
        for choice in chunk.get("choices") or ():
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            if choice.get("text") or any(delta.get(name) for name in _TEXTS):
                self.times_s.append(time_s)
                self._tokens_so_far.append(_tokens_so_far(chunk))


def _tokens_so_far(chunk: dict[str, Any]) -> int | None:
    """What vLLM gives with ``continuous_usage_stats``, llama.cpp with ``timings_per_token``."""
    usage, timings = chunk.get("usage") or {}, chunk.get("timings") or {}
    count: int | None = usage.get("completion_tokens") or timings.get("predicted_n")
    return count


def _message(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
