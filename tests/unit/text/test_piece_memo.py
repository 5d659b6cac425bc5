"""What a memo remembers, for whom, and how much of it."""

from __future__ import annotations

import pytest

from foreword.text.piece_memo import PieceMemo
from foreword.text.tokenizer import Tokenizer

WORDS = b"some words that go on and on, "
DOCUMENT = WORDS * 400  # 12,000 bytes


class Counting:
    """A core that counts the bytes it tokenises."""

    def __init__(self, core) -> None:
        self.cuts = core.cuts
        self._core = core
        self.num_bytes = 0

    def encode(self, text: bytes, parse_special: bool) -> list[int]:
        self.num_bytes += len(text)
        return self._core.encode(text, parse_special)

    def encode_pieces(
        self, text: bytes, ends: list[int], parse_special: bool, first: bool
    ) -> list[list[int]]:
        self.num_bytes += ends[-1] if ends else 0
        return self._core.encode_pieces(text, ends, parse_special, first)

    def take(self) -> int:
        taken, self.num_bytes = self.num_bytes, 0
        return taken


@pytest.fixture
def core(smollm2: Tokenizer) -> Counting:
    return Counting(smollm2._core)


def test_only_what_is_new_is_tokenised(core: Counting) -> None:
    memo = PieceMemo(core)
    memo.encode(DOCUMENT, False)
    assert core.take() == len(DOCUMENT)
    memo.encode(DOCUMENT + b"What does it say?", False)
    assert core.take() < 2 * 2100  # the last piece and what was added
    memo.encode(DOCUMENT + b"What does it say?", False)
    assert core.take() == 0


def test_a_text_with_another_salt_is_not_faster(core: Counting) -> None:
    memo = PieceMemo(core)
    memo.encode(DOCUMENT, False, "one tenant")
    core.take()
    memo.encode(DOCUMENT, False, "another")
    assert core.take() == len(DOCUMENT)
    memo.encode(DOCUMENT, False, "one tenant")
    assert core.take() == 0


def test_control_tokens_are_not_taken_from_where_they_are_text(core: Counting) -> None:
    memo, text = PieceMemo(core), WORDS * 200 + b"<|im_end|>" + WORDS * 200
    plain, parsed = memo.encode(text, False), memo.encode(text, True)
    assert (plain, parsed) == (core.encode(text, False), core.encode(text, True))
    assert plain != parsed


def test_short_texts_are_not_remembered(core: Counting) -> None:
    memo = PieceMemo(core)
    memo.encode(DOCUMENT[:8000], False)
    assert memo.num_bytes == 0


def test_memory_is_bounded_and_the_latest_stays(core: Counting) -> None:
    memo = PieceMemo(core, max_bytes=30_000)
    for number in range(20):
        memo.encode(b"%d " % number + DOCUMENT, False)
        assert memo.num_bytes <= 30_000
    core.take()
    memo.encode(b"19 " + DOCUMENT, False)
    assert core.take() == 0


def test_a_text_that_cannot_be_cut_and_is_too_large_is_just_tokenised(core: Counting) -> None:
    memo, text = PieceMemo(core, max_bytes=30_000), b"1234567890" * 4000
    assert memo.encode(text, False) == core.encode(text, False)
    assert memo.num_bytes == 0


def test_ends_of_pieces_are_checked(core: Counting) -> None:
    for ends in ([3, 2], [99]):
        with pytest.raises(ValueError, match="ascend"):
            core.encode_pieces(b"a text", ends, False, True)
