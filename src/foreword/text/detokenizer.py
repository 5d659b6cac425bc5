"""Text from token ids, one at a time."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable


class Detokenizer:
    """Turns ids into text as they come; a character split over tokens arrives whole.

    The texts that `push` and `flush` return, joined, are what `Tokenizer.decode` gives for all ids.

    Args:
        visible_bytes: the bytes of a token as they appear in text.
        strip_space: drop a space at the very start (the one that the tokenizer had put there).
    """

    def __init__(self, visible_bytes: Callable[[int], bytes], *, strip_space: bool) -> None:
        self._visible_bytes = visible_bytes
        self._strip_space = strip_space
        self._incomplete = b""  # the first bytes of a character

    def push(self, token_id: int) -> str:
        """The text that this token makes certain; bytes that are no UTF-8 become U+FFFD."""
        data = self._visible_bytes(token_id)
        if self._strip_space and data:
            self._strip_space = False
            data = data.removeprefix(b" ")
        if self._incomplete:
            data = self._incomplete + data
        text, num_used = utf_8_decode(data, "replace", False)
        self._incomplete = data[num_used:]
        return text

    def flush(self) -> str:
        """The incomplete character at the end as U+FFFD, if there is one. Call once, last."""
        return self._incomplete.decode(errors="replace")
