"""Prompts of exact lengths, made from text that every Python has."""

from __future__ import annotations

from collections.abc import Sequence


def corpus_text() -> str:
    """Python's own language reference: 465 KB of prose and code, the same wherever it is."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


class PromptSource:
    """Slices of a text's tokens, each with a beginning of its own.

    A prefix cache finds a prompt by how it begins, so no prompt helps another: every one is as cold
    as the first.

    Args:
        token_ids: the text; it is read round and round.
    """

    def __init__(self, token_ids: Sequence[int]) -> None:
        if not token_ids:
            raise ValueError("a prompt source needs tokens")
        self._tokens = list(token_ids)
        self._next = 0
        self._starts: set[int] = set()

    def take(self, length: int) -> list[int]:
        """Give the next ``length`` tokens.

        Raises:
            ValueError: every token of the text has been a beginning.
        """
        size = len(self._tokens)
        if len(self._starts) == size:
            raise ValueError(f"a text of {size} tokens has no more different beginnings")
        start = self._next % size
        while start in self._starts:
            start = (start + 1) % size
        self._starts.add(start)
        self._next = start + length
        return [self._tokens[(start + i) % size] for i in range(length)]
