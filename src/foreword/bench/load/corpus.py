"""Text by the token, for prompts of chosen lengths."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TypeVar

from foreword.bench.load.plan import Passage
from foreword.bench.prompts import corpus_text
from foreword.errors import ConfigError

_Value = TypeVar("_Value")

# English prose in vocabularies of 32,000 tokens and more; used only where no server tells.
_TOKENS_PER_WORD = 1.4


class Corpus:
    """A text in units of a known number of tokens.

    Args:
        units: the text; joined they are it.
        token_ids: the token that each unit is, where units are tokens.
        tokens_per_unit: how many tokens a unit has on average.
        counted_by: where that is known from, for the reader of a report.
    """

    def __init__(
        self,
        units: Sequence[str],
        *,
        token_ids: Sequence[int] | None = None,
        tokens_per_unit: float = 1.0,
        counted_by: str,
    ) -> None:
        self.counted_by = counted_by
        self.token_ids = token_ids
        self._units = units
        self._tokens_per_unit = tokens_per_unit
        # A passage begins with a word, so that it has the same tokens wherever it stands.
        self.starts = [i for i, unit in enumerate(units) if unit[:1].isspace()]

    @classmethod
    def of_words(cls, tokens_per_word: float | None = None) -> Corpus:
        """Take words for units, ``tokens_per_word`` as measured, or a guess."""
        return cls(
            re.findall(r"\s*\S+", text()),
            tokens_per_unit=tokens_per_word or _TOKENS_PER_WORD,
            counted_by="estimate" if tokens_per_word is None else "usage of two requests",
        )

    def passage(self, start: int, tokens: int) -> Passage:
        """Give about ``tokens`` tokens from a unit on; round and round."""
        count = max(1, round(tokens / self._tokens_per_unit))
        ids = self.token_ids
        return Passage(
            "".join(_round(self._units, start, count)),
            tokens,
            None if ids is None else tuple(_round(ids, start, count)),
        )


def _round(values: Sequence[_Value], start: int, count: int) -> Sequence[_Value]:
    """``count`` values from one on, the first after the last."""
    rounds = -(-(start + count) // len(values))
    return (values if rounds == 1 else list(values) * rounds)[start : start + count]


def text() -> str:
    """The text that all corpora are made from, in ASCII: no token is a part of a character."""
    return corpus_text().encode("ascii", "ignore").decode()


class Passages:
    """Draws passages from a corpus; the same seed draws the same."""

    def __init__(self, corpus: Corpus, seed: str) -> None:
        self._corpus = corpus
        self._seed = seed
        self._unused = random.Random(seed).sample(corpus.starts, len(corpus.starts))

    def fresh(self, tokens: int) -> Passage:
        """Give a passage that begins as no other fresh one does: no prefix cache knows it.

        Raises:
            ConfigError: every word of the corpus has been a beginning.
        """
        if not self._unused:
            count = len(self._corpus.starts)
            raise ConfigError("num_prompts", f"the corpus has no more than {count} beginnings")
        return self._corpus.passage(self._unused.pop(), tokens)

    def keyed(self, key: object, tokens: int) -> Passage:
        """Give the beginning of the passage that ``key`` stands for."""
        starts = self._corpus.starts
        start = starts[random.Random(f"{self._seed}/{key}").randrange(len(starts))]
        return self._corpus.passage(start, tokens)
