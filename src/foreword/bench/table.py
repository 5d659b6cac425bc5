"""Measurements for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from foreword.bench.eval import EvalReport
    from foreword.bench.kernels import KernelReport
    from foreword.bench.latency import LatencyReport
    from foreword.bench.peers.compare import Comparison


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
    change = f"{result.perplexity_change:+.2%} ± {result.perplexity_change_error:.2%}"
    table.add_row(
        "perplexity", f"{result.reference_perplexity:.3f}", f"{result.perplexity:.3f} ({change})"
    )
    table.add_row(
        "KL to reference, nats/token", "", f"{result.mean_kl:.5f} ± {result.mean_kl_error:.5f}"
    )
    table.add_row("same top token", "", f"{result.same_top_share:.2%}")
    return table


def kernels_tables(report: KernelReport) -> Iterator[Table]:
    """Lay out a report: a table for each kernel, a row for each shape."""
    from rich.table import Table

    for number, (kernel, times) in enumerate(groupby(report.times, key=lambda t: t.kernel)):
        table = Table(title=kernel, title_justify="left", box=None, padding=(0, 1, 0, 0))
        table.caption = None if number else _kernel_notes(report)
        table.add_column("shape", no_wrap=True, min_width=33)
        for heading in ("tokens", "µs", "GMAC/s", "of\nlimit", "GB/s", "of\nlimit"):
            table.add_column(heading, justify="right", no_wrap=True)
        for time in times:
            table.add_row(
                time.shape,
                f"{time.tokens}",
                f"{time.seconds * 1e6:,.1f}",
                f"{time.mac_s / 1e9:,.1f}" if time.mac_s else "–",
                _share(time.arithmetic_share(report.limits, report.isa)),
                f"{time.bytes_s / 1e9:,.1f}",
                _share(time.read_share(report.limits)),
            )
        yield table


def _kernel_notes(report: KernelReport) -> str:
    machine, limits = report.machine, report.limits
    parts = [f"{report.isa} on one thread of {machine['cpu']}, load {machine['load_1m']}; limits:"]
    for kind in ("int8", "float32"):
        limit = limits.arithmetic(kind, report.isa)
        if limit:
            parts.append(f"{kind} {limit.one / 1e9:,.0f} GMAC/s,")
    parts.append(f"memory {limits.read.one / 1e9:,.1f} GB/s (caches give more)")
    return " ".join(parts)


def peers_table(comparison: Comparison) -> Table:
    """Lay out a comparison: for each prompt length a row for each engine."""
    from rich.table import Table

    machine, settings = comparison.machine, comparison.settings
    notes = [f"{machine['cpu']}, {comparison.limits.threads} threads, load {machine['load_1m']}"]
    notes += [f"{engine.name}: {engine.version}" for engine in comparison.engines]
    notes += [f"{engine.name}: {engine.error}" for engine in comparison.engines if engine.error]
    notes += [f"no {name}: {why}" for name, why in comparison.absent.items()]
    table = Table(
        title=f"{comparison.model}: median of {settings.repeats}, interleaved; "
        f"{settings.output_tokens} tokens out",
        caption="\n".join(notes),
    )
    table.add_column("prompt", justify="right")
    table.add_column("engine")
    for heading in ("TTFT ms", "ours /\ntheirs", "of\nlimit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("decode\ntok/s", "ours /\ntheirs", "of\nlimit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for length in settings.prompt_lengths:
        for number, engine in enumerate(comparison.engines):
            row = comparison.row(engine, length)
            ttft, tpot = row["ttft_s"], row["tpot_s"]
            table.add_row(
                "" if number else f"{length}",
                engine.name,
                f"{ttft['median'] * 1e3:,.1f}" if ttft else "–",
                _ratio(row["our_ttft_ratio"]),
                _share(row["prefill_of_limit"]),
                f"{1 / tpot['median']:,.1f}" if tpot else "–",
                _ratio(row["our_decode_ratio"]),
                _share(row["decode_of_limit"]),
            )
        table.add_section()
    return table


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ×"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
