"""Write csrc/text/unicode_data.inc: the Unicode categories that tokenisers' splitting rules use.

Python's own `unicodedata` lags behind, so the tables come from the `regex` package:

    pip install regex && python tools/make_unicode_tables.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

import regex

TARGET = Path(__file__).parent.parent / "csrc" / "text" / "unicode_data.inc"
TABLES = {
    "kLetters": r"\p{L}",
    "kNumbers": r"\p{N}",
    "kPunctuation": r"\p{P}",
    "kSpaces": r"\p{White_Space}",
}


def ranges(pattern: str) -> list[tuple[int, int]]:
    matches = regex.compile(pattern).match
    codes = [c for c in range(sys.maxunicode + 1) if matches(chr(c))]
    # In a run of consecutive numbers, number minus index is constant.
    runs = (list(run) for _, run in groupby(enumerate(codes), lambda item: item[1] - item[0]))
    return [(run[0][1], run[-1][1]) for run in runs]


def render() -> str:
    lines = ["// Written by tools/make_unicode_tables.py; do not edit."]
    for name, pattern in TABLES.items():
        cells = [f"{{0x{first:X}, 0x{last:X}}}" for first, last in ranges(pattern)]
        lines += ["", f"// {pattern}", f"constexpr Range {name}[] = {{"]
        lines += ["    " + ", ".join(cells[i : i + 5]) + "," for i in range(0, len(cells), 5)]
        lines += ["};"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    text = render()
    if arguments.check:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
