"""A load run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from foreword.bench.load.report import LoadReport
    from foreword.bench.load.summary import ServerView
    from foreword.bench.stats import Percentiles


def load_tables(report: LoadReport) -> Iterator[Table | str]:
    """Lay out a report: latencies, counts, TTFT by kind, and the server's account if it has one."""
    summary = report.summary
    where = f"{report.target.model} at {report.target.url}"
    state = "partial: " if report.result.partial else ""
    latencies = _table(f"{state}{report.workload.name} on {where}")
    for name, spread in latency_rows(report).items():
        _row(latencies, name, spread)
    yield latencies
    yield "\n".join(load_lines(report))
    if len(summary.ttft_ms_by_kind) > 1:
        kinds = _table("TTFT by kind of request")
        for kind, spread in summary.ttft_ms_by_kind.items():
            _row(kinds, kind, spread)
        yield kinds
    if summary.server is not None:
        yield _server_table(summary.server)
        yield (
            f"of {summary.server.requests} requests; the token counts of both ends differ in "
            f"{summary.server.count_mismatches}"
        )


def latency_rows(report: LoadReport) -> dict[str, Percentiles | None]:
    """Give latencies by name; those from when a request was due only where that means something."""
    summary = report.summary
    rows = {
        "TTFT": summary.ttft_ms,
        "TPOT": summary.tpot_ms,
        "ITL": summary.itl_ms,
        "end to end": summary.e2e_ms,
    }
    if summary.refusal_ms is not None:
        rows["refused with 429 after"] = summary.refusal_ms
    if report.workload.open_loop:
        rows |= {
            "TTFT from when due": summary.intended_ttft_ms,
            "end to end from when due": summary.intended_e2e_ms,
            "sent late by": summary.send_lag_ms,
        }
    return rows


def load_lines(report: LoadReport) -> Iterator[str]:
    """Give in words what is no latency: counts, rates, errors, and what to know of all that."""
    summary, settings = report.summary, report.settings
    yield (
        f"{summary.good} of {summary.requests} requests good in {summary.duration_s:,.1f} s: "
        f"{summary.request_rps:,.2f} requests/s, {summary.output_tok_s:,.1f} output tokens/s"
    )
    yield (
        f"{summary.prompt_tokens:,} prompt tokens, of which {summary.cached_tokens:,} cached; "
        f"{summary.completion_tokens:,} output tokens"
    )
    for kind, count in summary.errors.items():
        first = next(
            record.failure
            for record in report.result.records
            if record.failure is not None and record.failure.kind.value == kind
        )
        yield f"{count} × {kind}, first: {first.detail}"
    if summary.interrupted:
        yield f"{summary.interrupted} requests were interrupted"
    if settings.slo is not None and summary.goodput_share is not None:
        limits = (("TTFT", settings.slo.ttft_ms), ("TPOT", settings.slo.tpot_ms))
        within = " and ".join(f"{name} ≤ {ms:g} ms" for name, ms in limits if ms is not None)
        yield (
            f"goodput {summary.goodput_rps:,.2f} requests/s: "
            f"{summary.goodput_share:.1%} kept {within}"
        )
    yield f"lengths of prompts by {report.tokens_counted_by}"
    calibration = report.calibration
    if calibration is not None:
        error, reading = calibration.ttft_error_ms, calibration.reading_ms
        yield (
            f"the client's own share, at {calibration.streams} streams: TTFT + {error.p50:.2f} ms "
            f"(p99 {error.p99:.2f}), a token noticed after {reading.p50:.2f} ms "
            f"(p99 {reading.p99:.2f})"
        )
    yield from report.workload.notes
    yield from summary.notes


def _server_table(server: ServerView) -> Table:
    table = _table("TTFT by the server's own account")
    _row(table, "TTFT", server.ttft_ms)
    for part, spread in server.parts_ms.items():
        _row(table, f"  {part}", spread)
    _row(table, "the client's TTFT less that", server.remainder_ms)
    return table


def _table(title: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("ms", no_wrap=True)
    for heading in ("p50", "p90", "p99", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _row(table: Table, name: str, spread: Percentiles | None) -> None:
    if spread is not None:
        numbers = (spread.p50, spread.p90, spread.p99, spread.max)
        table.add_row(name, *(f"{number:,.2f}" for number in numbers))
