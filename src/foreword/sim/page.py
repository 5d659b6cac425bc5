"""A simulation as a page with plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from foreword.bench.html import figure, paragraphs, table, write_page
from foreword.bench.load.record import RequestRecord
from foreword.sim.curve import Point
from foreword.sim.report import SimReport
from foreword.sim.table import kind_rows, policy_table, replica_rows, sim_lines


def write_sim_page(report: SimReport, path: Path) -> None:
    """Write the report as one HTML file with everything in it.

    Raises:
        ForewordError: plotly is not installed.
    """
    title = f"{report.workload} on {report.settings.replicas} × {report.profile.name}, simulated"
    write_page(path, title, _parts(report))


def _parts(report: SimReport) -> Iterator[tuple[str, Any]]:
    yield "Summary", table(*policy_table(report)) + paragraphs(sim_lines(report))
    yield "TTFT of how many requests was below", _cdf(report, "TTFT", lambda r: r.intended_ttft_s)
    yield "TPOT of how many requests was below", _cdf(report, "TPOT", lambda r: r.tpot_s)
    if kinds := kind_rows(report):
        headings = ("kind", "policy", "requests", "TTFT p50", "p90", "p99", "max")
        yield "TTFT by kind of request, ms", table(headings, kinds)
    yield "Requests that wait", _over_time(report, "requests", lambda point: point.waiting)
    yield "Requests that run", _over_time(report, "requests", lambda point: point.running)
    yield "Tokens computed a second", _tokens(report)
    if report.settings.replicas > 1:
        headings = ("policy", "replica", "requests", "TTFT p50", "p99", "hit rate", "busy")
        yield "Replicas", table(headings, replica_rows(report))


def _cdf(report: SimReport, name: str, seconds: Callable[[RequestRecord], float | None]) -> Any:
    """A line for each policy and kind of request."""
    plot = figure(f"{name}, ms (logarithmic)", "share of requests")
    plot.update_xaxes(type="log")
    for policy in report.policies:
        kinds = policy.summary.ttft_ms_by_kind
        for kind in kinds:
            values = sorted(
                value * 1e3
                for record in policy.result.records
                if record.kind == kind and (value := seconds(record)) is not None
            )
            shares = [(place + 1) / len(values) for place in range(len(values))]
            label = f"{policy.policy}, {kind}" if len(kinds) > 1 else policy.policy
            plot.add_scatter(x=values, y=shares, mode="lines", line={"shape": "hv"}, name=label)
    return plot


def _over_time(report: SimReport, y_title: str, value: Callable[[Point], float]) -> Any:
    plot = figure("virtual seconds", y_title)
    for name, points in _replicas(report):
        plot.add_scatter(x=[p.at_s for p in points], y=[value(p) for p in points], name=name)
    return plot


def _tokens(report: SimReport) -> Any:
    plot = figure("virtual seconds", "tokens a second")
    for name, points in _replicas(report):
        rates = [
            (later.at_s, (later.computed_tokens - earlier.computed_tokens) / gap_s)
            for earlier, later in pairwise(points)
            if (gap_s := later.at_s - earlier.at_s) > 0
        ]
        plot.add_scatter(x=[at_s for at_s, _ in rates], y=[rate for _, rate in rates], name=name)
    return plot


def _replicas(report: SimReport) -> Iterator[tuple[str, Sequence[Point]]]:
    several = report.settings.replicas > 1
    for policy in report.policies:
        for number, replica in enumerate(policy.replicas):
            name = f"{policy.policy}, replica {number}" if several else policy.policy
            yield name, replica.points
