"""Measurements for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foreword.bench.latency import LatencyReport
from foreword.bench.stats import Summary

if TYPE_CHECKING:
    from rich.table import Table


def latency_table(report: LatencyReport) -> Table:
    """Lay out a report: a row for each case, medians, with the range where it matters."""
    from rich.table import Table

    machine = report.machine
    notes = [f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_1m']}"]
    cached = max(case.cached_tokens for case in report.cases)
    if cached:
        notes.append(f"up to {cached} prompt tokens came from the prefix cache")
    table = Table(
        title=f"{report.engine['model']}: median of {report.settings.repeats}",
        caption="\n".join(notes),
    )
    for heading in ("prompt", "output", "TTFT ms", "(range)", "TPOT ms", "(range)"):
        table.add_column(heading, justify="right")
    table.add_column("prefill tok/s", justify="right")
    table.add_column("decode tok/s", justify="right")
    for case in report.cases:
        table.add_row(
            str(case.prompt_tokens),
            str(case.output_tokens),
            *_median_and_range(case.ttft_ms, 1),
            *_median_and_range(case.tpot_ms, 2),
            f"{case.prefill_tok_s.median:,.0f}",
            f"{case.decode_tok_s.median:,.1f}" if case.decode_tok_s else "–",
        )
    return table


def _median_and_range(summary: Summary | None, digits: int) -> tuple[str, str]:
    if summary is None:
        return "–", ""
    return (
        f"{summary.median:,.{digits}f}",
        f"{summary.low:,.{digits}f}–{summary.high:,.{digits}f}",
    )
