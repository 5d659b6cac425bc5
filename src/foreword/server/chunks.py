"""The events of a completion stream, in OpenAI's order and with little work for each token."""

from __future__ import annotations

import json
from typing import Any, Protocol

from foreword.core.step import TokenLogprob
from foreword.engine.outputs import CompletionDelta, RequestDelta, RequestOutput
from foreword.metrics.record import TokenCounts
from foreword.server.event_stream import event


class Dialect(Protocol):
    """How one endpoint spells its answers."""

    object: str
    """OpenAI's name for a whole answer."""
    chunk_object: str
    """OpenAI's name for a chunk of one."""

    def opening(self, prompt: int, choice: int, delta: RequestDelta) -> str | None:
        """Return the JSON members of a choice's first chunk, or None for no such chunk."""

    def content(self, choice: int, text: str, logprobs: tuple[TokenLogprob, ...]) -> str:
        """Return the JSON members of a chunk with ``text``, which is empty in the last one."""

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the members of a whole answer: ``choices`` and what else the endpoint has."""


class Chunks:
    """Writes the chunks of one stream.

    For each choice: an opening chunk, chunks with text, and one chunk with the finish reason and
    no text. Choices are numbered over prompts × ``n``. The JSON around a text is made once; a
    chunk costs the escaping of its text and a concatenation.

    Args:
        envelope: the members that all chunks share (``id``, ``object``, ``created``, ``model``).
        n: completions of each prompt.
        include_usage: whether a last chunk will carry the usage; all others say null then.
    """

    def __init__(
        self, dialect: Dialect, envelope: dict[str, Any], n: int, *, include_usage: bool
    ) -> None:
        self._dialect = dialect
        self._envelope = envelope
        self._n = n
        self._head = f'data: {compact(envelope)[:-1]},"choices":[{{"index":'
        self._tail = '}],"usage":null}\n\n' if include_usage else "}]}\n\n"
        self._opened: set[int] = set()

    def delta(self, prompt: int, delta: RequestDelta) -> bytes:
        """Return the events for what one step brought to a prompt."""
        return "".join(self._events(prompt, delta, part) for part in delta.completions).encode()

    def closing(self, members: dict[str, Any]) -> bytes:
        """Return an event that has no choices but other members."""
        return event({**self._envelope, "choices": [], **members})

    def _events(self, prompt: int, delta: RequestDelta, part: CompletionDelta) -> str:
        choice = prompt * self._n + part.index
        events = ""
        if choice not in self._opened:
            self._opened.add(choice)
            opening = self._dialect.opening(prompt, choice, delta)
            if opening is not None:
                events = self._chunk(choice, opening, '"finish_reason":null')
        logprobs = part.logprobs
        if part.text:
            members = self._dialect.content(choice, part.text, logprobs)
            events += self._chunk(choice, members, '"finish_reason":null')
            logprobs = ()
        if part.finish_reason is not None:
            members = self._dialect.content(choice, "", logprobs)
            reason, stop = compact(part.finish_reason.value), compact(part.stop_reason)
            events += self._chunk(choice, members, f'"finish_reason":{reason},"stop_reason":{stop}')
        return events

    def _chunk(self, choice: int, members: str, finish: str) -> str:
        return f"{self._head}{choice},{members},{finish}{self._tail}"


def usage_json(usage: TokenCounts) -> dict[str, Any]:
    """Return OpenAI's ``usage`` object."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def compact(payload: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(payload, separators=(",", ":"))
