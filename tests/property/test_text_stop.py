"""Stop strings against a model that looks at the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foreword.text.stop import StopStrings

LETTERS = st.text("ab\n", max_size=30)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=6), max_size=4)


def first_match(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def held_back(text: str, stops: list[str]) -> str:
    prefixes = {stop[:n] for stop in stops for n in range(len(stop))}
    return max(
        (text[i:] for i in range(len(text) + 1) if text[i:] in prefixes or i == len(text)), key=len
    )


@given(stops=STOPS, pieces=st.lists(LETTERS, max_size=8))
def test_every_chunking_gives_what_the_whole_text_gives(
    stops: list[str], pieces: list[str]
) -> None:
    finder = StopStrings(stops)
    shown, matched = "", None
    for i, piece in enumerate(pieces):
        seen = "".join(pieces[: i + 1])
        more, matched = finder.push(piece)
        shown += more
        expected, stop = first_match(seen, stops)
        assert matched == stop
        # Nothing of a stop string leaks, and nothing else waits.
        assert shown == (expected if stop else seen.removesuffix(held_back(seen, stops)))
    shown += finder.flush()
    assert (shown, matched) == first_match("".join(pieces), stops)


@given(text=st.text(max_size=50))
def test_without_stop_strings_nothing_waits(text: str) -> None:
    finder = StopStrings([])
    assert finder.push(text) == (text, None)
    assert finder.flush() == ""


def test_after_a_match_nothing_is_shown() -> None:
    finder = StopStrings(["END"])
    assert finder.push("a E") == ("a ", None)
    assert finder.push("ND b") == ("", "END")
    assert finder.push("more") == ("", "END")
    assert finder.flush() == ""


def test_a_long_stop_string_that_does_not_come_delays_nothing() -> None:
    finder = StopStrings(["#" * 1000, "\n\nUser:"])
    assert finder.push("Hello") == ("Hello", None)
    assert finder.push(" world\n") == (" world", None)
    assert finder.push("x") == ("\nx", None)
