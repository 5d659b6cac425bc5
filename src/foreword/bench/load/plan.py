"""What a load run asks for: requests that are wholly made before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from foreword.core.request import NOT_URGENT, Urgency


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

    @classmethod
    def joined(cls, *passages: Passage) -> Passage:
        """Give passages one after the other as one."""
        pieces = [passage.token_ids for passage in passages if passage.token_ids is not None]
        known = len(pieces) == len(passages)
        return cls(
            "".join(passage.text for passage in passages),
            sum(passage.tokens for passage in passages),
            tuple(chain.from_iterable(pieces)) if known else None,
        )


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
        urgency: what it asks of a server that knows priorities and SLOs; `NOT_URGENT`: nothing.
    """

    index: int
    kind: str
    messages: tuple[Message, ...]
    max_tokens: int
    intended_s: float | None = None
    urgency: Urgency = NOT_URGENT

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the messages as planned, without what a chat template adds."""
        return sum(message.passage.tokens for message in self.messages)

    def chat_prompt(self) -> list[dict[str, str]]:
        """Give the conversation as ``messages`` of a chat completion."""
        return [{"role": m.role, "content": m.passage.text} for m in self.messages]

    def plain_prompt(self) -> Passage:
        """Give the conversation as one text, for completions."""
        return Passage.joined(*(message.passage for message in self.messages))


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

    @property
    def open_loop(self) -> bool:
        """Whether requests have times of their own."""
        return any(request.intended_s is not None for request in self.requests)
