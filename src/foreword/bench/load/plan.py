"""What a load run asks for: requests that are wholly made before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a prompt.

    Attributes:
        tokens: how many tokens it is meant to have.
        token_ids: the tokens themselves, where the server's tokenizer was asked; else None.
    """

    text: str
    tokens: int
    token_ids: tuple[int, ...] | None = None

    def __add__(self, other: Passage) -> Passage:
        """Return this passage and then ``other``."""
        ids = None
        if self.token_ids is not None and other.token_ids is not None:
            ids = self.token_ids + other.token_ids
        return Passage(self.text + other.text, self.tokens + other.tokens, ids)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    passage: Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of a run.

    Attributes:
        index: its place in the plan.
        kind: what it is within its workload (``"short"``, ``"turn 3"``); results go by it.
        messages: the conversation; a server is asked for the next message of the assistant.
        max_tokens: tokens to generate, and where the server has ``ignore_eos``, exactly so many.
        intended_s: when to send it, from the start of the run; None: as soon as there is room.
    """

    index: int
    kind: str
    messages: tuple[Message, ...]
    max_tokens: int
    intended_s: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the messages as planned, without what a chat template adds."""
        return sum(message.passage.tokens for message in self.messages)

    def chat_prompt(self) -> list[dict[str, str]]:
        """Give the conversation as ``messages`` of a chat completion."""
        return [{"role": m.role, "content": m.passage.text} for m in self.messages]

    def text_prompt(self) -> str:
        """Give the conversation as one text."""
        return "".join(message.passage.text for message in self.messages)

    def token_prompt(self) -> list[int] | None:
        """Give the conversation as token ids, or None where they are not known."""
        ids: list[int] = []
        for message in self.messages:
            if message.passage.token_ids is None:
                return None
            ids += message.passage.token_ids
        return ids


@dataclass(frozen=True, slots=True)
class Workload:
    """A named plan.

    Attributes:
        settings: what it was made from; with the same corpus they make the same requests.
        notes: what its reader should know (lines of a trace that were left out, and why).
    """

    name: str
    requests: Sequence[PlannedRequest]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
