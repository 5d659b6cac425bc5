"""Lists of lengths on the command line."""

from __future__ import annotations

import typer


def parse_lengths(text: str) -> tuple[int, ...]:
    """Read whole numbers with commas between.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        return tuple(int(length) for length in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of lengths such as 128,512") from None
