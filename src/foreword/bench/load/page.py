"""A load run as a page with plots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from foreword.bench.html import figure, many_colours, paragraphs, table, write_page
from foreword.bench.load.record import RequestRecord
from foreword.bench.load.report import LoadReport
from foreword.bench.load.summary import in_order, parts_ms
from foreword.bench.load.table import latency_rows, load_lines

_MOST_BARS = 200  # of single requests in the plot of parts


def write_load_page(report: LoadReport, path: Path) -> None:
    """Write the report as one HTML file with everything in it.

    Raises:
        ForewordError: plotly is not installed.
    """
    title = f"{report.workload.name} on {report.target.model}"
    if report.result.partial:
        title += " (partial)"
    write_page(path, title, _parts(report))


def _parts(report: LoadReport) -> Iterator[tuple[str, Any]]:
    good = [record for record in report.result.records if record.ok]
    machine = report.machine
    about = f"{report.target.url}, {report.created_at}; client on {machine['cpu']}, " + (
        f"{machine['cores']} cores, load {machine['load_1m']}"
    )
    yield "Summary", _latencies(report) + paragraphs([about, *load_lines(report)])
    yield "When requests were sent, and their TTFT", _timeline(report.result.records)
    if not good:
        return
    yield "TTFT of how many requests was below", _cdf(good, "TTFT", lambda r: r.ttft_s)
    yield "TPOT of how many requests was below", _cdf(good, "TPOT", lambda r: r.tpot_s)
    yield "TTFT by length of prompt", _by_length(good)
    if report.summary.server is not None:
        yield "What the TTFT was spent on, by the server's account", _bars(good)


def _latencies(report: LoadReport) -> str:
    kinds = report.summary.ttft_ms_by_kind
    spreads = latency_rows(report) | {f"TTFT, {kind}": kinds[kind] for kind in kinds}
    rows = [
        [name, *(f"{value:,.2f}" for value in (spread.p50, spread.p90, spread.p99, spread.max))]
        for name, spread in spreads.items()
        if spread is not None
    ]
    return table(["ms", "p50", "p90", "p99", "max"], rows)


def _timeline(records: Sequence[RequestRecord]) -> Any:
    plot = figure("seconds since the start", "TTFT, ms")
    for kind, group in _by_kind([record for record in records if record.ok]).items():
        plot.add_scatter(
            x=[record.sent_s for record in group],
            y=[(record.ttft_s or 0.0) * 1e3 for record in group],
            mode="markers",
            name=kind,
            text=[_about(record) for record in group],
        )
    failed = [record for record in records if not record.ok]
    if failed:
        plot.add_scatter(
            x=[record.intended_s for record in failed],
            y=[0.0] * len(failed),
            mode="markers",
            marker={"symbol": "x", "color": "crimson"},
            name="failed",
            text=[
                f"{_about(record)}: {record.failure and record.failure.kind.value}"
                for record in failed
            ],
        )
    return plot


def _cdf(
    good: Sequence[RequestRecord], name: str, seconds: Callable[[RequestRecord], float | None]
) -> Any:
    plot = figure(f"{name}, ms", "share of requests")
    for kind, group in _by_kind(good).items():
        values = sorted(value * 1e3 for value in map(seconds, group) if value is not None)
        shares = [(place + 1) / len(values) for place in range(len(values))]
        plot.add_scatter(x=values, y=shares, mode="lines", line={"shape": "hv"}, name=kind)
    return plot


def _by_length(good: Sequence[RequestRecord]) -> Any:
    plot = figure("tokens of the prompt", "TTFT, ms")
    for kind, group in _by_kind(good).items():
        plot.add_scatter(
            x=[record.prompt_tokens or record.planned_prompt_tokens for record in group],
            y=[(record.ttft_s or 0.0) * 1e3 for record in group],
            mode="markers",
            name=kind,
            text=[_about(record) for record in group],
        )
    return plot


def _bars(good: Sequence[RequestRecord]) -> Any:
    shown = [record for record in good if record.timing is not None][:_MOST_BARS]
    sums = [parts_ms(record.timing or {}) for record in shown]
    rest = [
        (record.ttft_s or 0.0) * 1e3 - sum(parts.values())
        for record, parts in zip(shown, sums, strict=True)
    ]
    plot = figure(f"request (the first {len(shown)})", "ms")
    for name in in_order(name for parts in sums for name in parts):
        plot.add_bar(
            x=[record.index for record in shown],
            y=[parts.get(name, 0.0) for parts in sums],
            name=name,
        )
    plot.add_bar(x=[record.index for record in shown], y=rest, name="between server and client")
    plot.update_layout(barmode="stack", colorway=many_colours())
    return plot


def _by_kind(records: Sequence[RequestRecord]) -> dict[str, list[RequestRecord]]:
    groups: defaultdict[str, list[RequestRecord]] = defaultdict(list)
    for record in records:
        groups[record.kind].append(record)
    return groups


def _about(record: RequestRecord) -> str:
    prompt = record.prompt_tokens or record.planned_prompt_tokens
    return f"request {record.index}: {prompt} prompt tokens, {record.cached_tokens or 0} cached"
