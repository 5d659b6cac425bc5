"""A simulation in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from foreword.bench.load.summary import summarise
from foreword.sim.report import PolicyReport, SimReport, hit_rate

if TYPE_CHECKING:
    from rich.table import Table

    from foreword.bench.stats import Percentiles


def sim_tables(report: SimReport) -> Iterator[Table | str]:
    """Lay out a report: a column for each policy, TTFT by kind of request, and each replica."""
    title = f"{report.workload} on {report.settings.replicas} × {report.profile.name}"
    yield _table(title, *policy_table(report))
    yield "\n".join(sim_lines(report))
    if kinds := kind_rows(report):
        headings = ("kind", "policy", "requests", "TTFT p50", "p90", "p99", "max")
        yield _table("TTFT by kind of request; ms", headings, kinds, num_names=2)
    if report.settings.replicas > 1:
        headings = ("policy", "replica", "requests", "TTFT p50", "p99", "hit rate", "busy")
        rows = replica_rows(report)
        yield _table(f"Replicas, {report.settings.router}; ms", headings, rows, num_names=2)


def policy_table(report: SimReport) -> tuple[list[str], list[list[str]]]:
    """Give headings and rows: what there is to know, with a column for each policy."""
    columns = [_figures(policy) for policy in report.policies]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return ["", *(policy.policy for policy in report.policies)], rows


def _figures(policy: PolicyReport) -> dict[str, str]:
    summary, totals = policy.summary, policy.totals
    figures = {}
    for name, spread in (("TTFT", summary.ttft_ms), ("TPOT", summary.tpot_ms)):
        for share, text in zip(("p50", "p90", "p99", "max"), _spread(spread), strict=True):
            figures[f"{name} {share}, ms"] = text
    if summary.goodput_share is not None:
        figures["goodput"] = f"{summary.goodput_rps:,.2f}/s"
        figures["  of all requests"] = f"{summary.goodput_share:.1%}"
    return figures | {
        "requests per second": f"{summary.request_rps:,.2f}",
        "prompt tokens cached": f"{hit_rate(totals):.1%}",
        "time spent computing": f"{policy.utilisation:.1%}",
        "preemptions": f"{totals.preemptions:,}",
        "tokens computed again": f"{totals.waste_ratio:.1%}",
    }


def kind_rows(report: SimReport) -> list[list[str]]:
    """Give TTFT by kind and policy; nothing where all requests are of one kind."""
    spreads = [policy.summary.ttft_ms_by_kind for policy in report.policies]
    kinds = list(dict.fromkeys(chain.from_iterable(spreads)))
    if len(kinds) < 2:
        return []
    return [
        [kind, policy.policy, f"{spread.count:,}", *_spread(spread)]
        for kind in kinds
        for policy in report.policies
        if (spread := policy.summary.ttft_ms_by_kind.get(kind)) is not None
    ]


def replica_rows(report: SimReport) -> list[list[str]]:
    """Give what each replica did under each policy."""
    rows = []
    for policy in report.policies:
        for number, replica in enumerate(policy.replicas):
            ttft = summarise(replica.result).ttft_ms
            rows.append(
                [
                    policy.policy,
                    str(number),
                    f"{len(replica.result.records):,}",
                    *((f"{ttft.p50:,.1f}", f"{ttft.p99:,.1f}") if ttft else ("–", "–")),
                    f"{hit_rate(replica.totals):.1%}",
                    f"{replica.busy_s / policy.duration_s if policy.duration_s else 0:.1%}",
                ]
            )
    return rows


def sim_lines(report: SimReport) -> Iterator[str]:
    """Give in words what is no latency: counts, rates, errors, and where the costs are from."""
    profile = report.profile
    yield f"costs: {profile.name}. {profile.about}"
    for policy in report.policies:
        summary = policy.summary
        yield (
            f"{policy.policy}: {summary.good} of {summary.requests} requests good in "
            f"{summary.duration_s:,.1f} virtual s, {summary.request_rps:,.2f} requests/s; "
            f"{summary.prompt_tokens:,} prompt tokens, of which {summary.cached_tokens:,} cached; "
            f"{summary.completion_tokens:,} output tokens"
        )
        failure = next((r.failure for r in policy.result.records if r.failure is not None), None)
        if failure is not None:
            refused = sum(summary.errors.values())
            yield f"{policy.policy}: {refused} refused, first: {failure.detail}"
    if report.slo is not None:
        limits = (("TTFT", report.slo.ttft_ms), ("TPOT", report.slo.tpot_ms))
        yield "goodput: " + " and ".join(f"{n} ≤ {ms:g} ms" for n, ms in limits if ms is not None)
    yield from report.notes
    yield from report.policies[0].summary.notes


def _spread(spread: Percentiles | None) -> Sequence[str]:
    if spread is None:
        return ("–",) * 4
    return tuple(f"{ms:,.2f}" for ms in (spread.p50, spread.p90, spread.p99, spread.max))


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], num_names: int = 1
) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < num_names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
