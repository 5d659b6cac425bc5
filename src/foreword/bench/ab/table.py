"""A report for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foreword.bench.ab import words

if TYPE_CHECKING:
    from rich.console import RenderableType

    from foreword.bench.ab.report import AbReport


def ab_tables(report: AbReport) -> Iterator[RenderableType]:
    """Lay out a report: figures, evidence, remarks, and the verdict last."""
    from rich.table import Table

    sides = Table.grid(padding=(0, 2))
    for row in words.side_rows(report):
        sides.add_row(*row)
    yield sides
    effects = Table()
    for number, heading in enumerate(words.EFFECT_HEADINGS):
        effects.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
    for cells in words.effect_rows(report):
        effects.add_row(*cells)
    yield effects
    evidence = Table("what was active, mean per request", "a", "b", box=None)
    for cells in words.evidence_rows(report):
        evidence.add_row(*cells)
    if evidence.row_count:
        yield evidence
    yield from words.remarks(report)
    yield words.headline(report)
