"""Measurements for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foreword.bench.latency import LatencyReport

if TYPE_CHECKING:
    from rich.table import Table


def latency_table(report: LatencyReport) -> Table:
    """Lay out a report: a row for each case, medians, and the range of TTFT."""
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
    headings = (
        "prompt",
        "output",
        "TTFT ms",
        "range",
        "TPOT ms",
        "prefill\ntok/s",
        "decode\ntok/s",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for case in report.cases:
        ttft, tpot, decode = case.ttft_ms, case.tpot_ms, case.decode_tok_s
        table.add_row(
            f"{case.prompt_tokens}",
            f"{case.output_tokens}",
            f"{ttft.median:,.1f}",
            f"{ttft.low:,.1f}–{ttft.high:,.1f}",
            f"{tpot.median:,.2f}" if tpot else "–",
            f"{case.prefill_tok_s.median:,.0f}",
            f"{decode.median:,.1f}" if decode else "–",
        )
    return table
