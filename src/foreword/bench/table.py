"""Measurements for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from foreword.bench.eval import EvalReport
    from foreword.bench.latency import LatencyReport


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


def eval_table(report: EvalReport) -> Table:
    """Lay out a report: a row for each number, the reference's beside the candidate's."""
    from rich.table import Table

    result = report.result
    table = Table(
        title=f"{report.model}: {report.settings.windows} windows of "
        f"{report.settings.window_tokens} tokens of {report.text}"
    )
    table.add_column("", no_wrap=True)
    table.add_column("reference", justify="right")
    table.add_column("candidate", justify="right")
    sides = (report.reference.to_json()["backend"], report.candidate.to_json()["backend"])
    for name in sides[0] | sides[1]:
        table.add_row(name, *(str(side.get(name, "–")) for side in sides))
    table.add_section()
    change = f"{result.perplexity:.3f} ({result.perplexity_change:+.2%})"
    table.add_row("perplexity", f"{result.reference_perplexity:.3f}", change)
    table.add_row(
        "KL to reference, nats/token", "", f"{result.mean_kl:.5f} ± {result.mean_kl_error:.5f}"
    )
    table.add_row("same top token", "", f"{result.same_top_share:.2%}")
    return table
