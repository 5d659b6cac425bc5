"""How byte-level BPE cuts text into words: by hand, and against regular expressions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import PreTokenizer as Oracle
from tokenizers.pre_tokenizers import Sequence, Split

from foreword._core import PreTokenizer, split_words

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXPRESSIONS = {
    PreTokenizer.GPT2: [GPT2],
    PreTokenizer.SMOLLM: [r"\p{N}", GPT2],
    PreTokenizer.LLAMA3: [LLAMA3],
    PreTokenizer.QWEN2: [LLAMA3.replace("{1,3}", "")],
    PreTokenizer.DEFAULT: [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
ORACLES: dict[PreTokenizer, Oracle] = {
    rules: Sequence([Split(Regex(part), "isolated") for part in parts])
    for rules, parts in EXPRESSIONS.items()
}


def words(rules: PreTokenizer, text: str) -> list[str]:
    data = text.encode()
    return [data[a:b].decode() for a, b in pairwise([0, *split_words(rules, data)])]


@pytest.mark.parametrize(
    ("rules", "text", "expected"),
    [
        (PreTokenizer.GPT2, "", []),
        (PreTokenizer.GPT2, "I'm  here, 123abc", ["I", "'m", " ", " here", ",", " 123", "abc"]),
        (PreTokenizer.GPT2, "I'M", ["I", "'", "M"]),
        (PreTokenizer.GPT2, "a\n\n b ", ["a", "\n\n", " b", " "]),
        (PreTokenizer.GPT2, "\ta", ["\t", "a"]),
        (PreTokenizer.SMOLLM, "a12 3", ["a", "1", "2", " ", "3"]),
        (PreTokenizer.SMOLLM, "x  7", ["x", "  ", "7"]),
        (PreTokenizer.LLAMA3, "12345 I'M", ["123", "45", " I", "'M"]),
        (PreTokenizer.LLAMA3, "\ta(b)\n\n c", ["\ta", "(b", ")\n\n", " c"]),
        (PreTokenizer.LLAMA3, "a \n \n  b", ["a", " \n \n", " ", " b"]),
        (PreTokenizer.QWEN2, "123 x!!\r\n", ["1", "2", "3", " x", "!!\r\n"]),
        (PreTokenizer.DEFAULT, "a+=1234.5", ["a", "+=", "123", "4", ".", "5"]),
        (PreTokenizer.DEFAULT, "x 1", ["x", " ", "1"]),
    ],
)
def test_by_hand(rules: PreTokenizer, text: str, expected: list[str]) -> None:
    assert words(rules, text) == expected


# Of the characters on which the rules turn, more than chance would give.
TEXTS = st.lists(
    st.sampled_from(
        [*" \t\n\r'aSléß世１²½٣.,!-+$<|_\u0301\u00a0\u3000\u0085\x1c😀", "'ll", "'RE", "12"]
    )
    | st.characters(exclude_categories=["Cs", "Cn", "Co"]),
    max_size=24,
).map("".join)


@pytest.mark.parametrize("rules", ORACLES)
@settings(max_examples=150)
@given(text=TEXTS)
def test_against_regular_expressions(rules: PreTokenizer, text: str) -> None:
    expected = [word for word, _ in ORACLES[rules].pre_tokenize_str(text)]
    assert words(rules, text) == expected
