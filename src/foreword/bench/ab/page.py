"""A report as a page with plots, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foreword.bench.ab import words
from foreword.bench.ab.blocks import Side
from foreword.bench.ab.report import AbReport
from foreword.bench.html import import_plotly, paragraphs, table, write_page

_SIDES: tuple[Side, Side] = ("a", "b")
_COLOURS = {"a": "#3b6fb6", "b": "#d1662b"}


def write_report(path: Path, report: AbReport) -> None:
    """Write the page; it loads nothing from elsewhere.

    Raises:
        ForewordError: plotly is not installed.
        OSError: the file cannot be written.
    """
    parts: list[tuple[str, Any]] = [
        ("Sides", table(("", ""), words.side_rows(report))),
        ("Figures", table(words.EFFECT_HEADINGS, words.effect_rows(report))),
        ("How to read them", paragraphs(words.remarks(report))),
    ]
    if report.findings.effects:
        parts.append(("Change, b beside a", _changes(report)))
    if report.measured.pairs:
        parts.append(("TTFT, share of requests below", _distribution(report)))
        parts.append(("TTFT of every request", _course(report)))
    evidence = words.evidence_rows(report)
    if evidence:
        parts.append(("What was active, mean per request", table(("", "a", "b"), evidence)))
    write_page(path, words.headline(report), parts)


def _changes(report: AbReport) -> Any:
    """Change of each metric with its interval, and side a beside itself."""
    plot = import_plotly()

    effects = [(effect.metric.label.split(",")[0], effect) for effect in report.findings.effects]
    if report.findings.noise is not None:
        effects.append(("A/A", report.findings.noise))
    shown = [(label, effect.change) for label, effect in reversed(effects) if effect.change]
    middle = [100 * change.value for _, change in shown]
    figure = plot.Figure(
        plot.Scatter(
            x=middle,
            y=[label for label, _ in shown],
            mode="markers",
            marker={"size": 10, "color": _COLOURS["b"]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [100 * (change.high - change.value) for _, change in shown],
                "arrayminus": [100 * (change.value - change.low) for _, change in shown],
            },
        )
    )
    figure.add_vline(x=0, line_dash="dot")
    return figure.update_layout(xaxis_title="%")


def _distribution(report: AbReport) -> Any:
    """Share of requests whose TTFT was below."""
    plot = import_plotly()

    figure = plot.Figure()
    for side in _SIDES:
        values = np.concatenate([getattr(pair, side).ttft_s for pair in report.measured.pairs])
        values = np.sort(values[~np.isnan(values)]) * 1e3
        share = np.arange(1, len(values) + 1) / max(1, len(values))
        figure.add_scatter(
            x=values.tolist(),
            y=share.tolist(),
            name=side,
            line={"shape": "hv", "color": _COLOURS[side]},
        )
    return figure.update_layout(xaxis_title="ms")


def _course(report: AbReport) -> Any:
    """Every request's TTFT over the run: drift falls on both sides of a pair."""
    plot = import_plotly()

    figure = plot.Figure()
    for side in _SIDES:
        offset = -0.15 if side == "a" else 0.15
        blocks = [getattr(pair, side).ttft_s * 1e3 for pair in report.measured.pairs]
        places = [1 + number + offset for number, block in enumerate(blocks) for _ in block]
        values = [None if np.isnan(v) else float(v) for block in blocks for v in block]
        figure.add_scatter(
            x=places,
            y=values,
            name=side,
            mode="markers",
            marker={"size": 5, "color": _COLOURS[side], "opacity": 0.6},
        )
    return figure.update_layout(xaxis_title="pair", yaxis_title="ms")
