"""A report in words: what terminal and page both say."""

from __future__ import annotations

from foreword.bench.ab.effect import Effect
from foreword.bench.ab.evidence import differing
from foreword.bench.ab.report import AbReport
from foreword.bench.ab.verdict import Verdict


def headline(report: AbReport) -> str:
    """The verdict in a sentence, with the primary figure."""
    verdict, effect = report.verdict, report.findings.primary
    said = _said(verdict)
    return f"{said}." if effect is None else f"{said}: {_primary(effect)}."


def _said(verdict: Verdict) -> str:
    if verdict.word == "not shown":
        return "Not shown that side b is better or worse"
    return f"Side b is {verdict.word}"


def _primary(effect: Effect) -> str:
    """A figure of both sides, and the change with its interval."""
    metric = effect.metric
    what, _, unit = metric.label.partition(", ")
    a, b = effect.a * metric.scale, effect.b * metric.scale
    return f"{what} {a:,.4g} → {b:,.4g} {unit} ({_change(effect)})"


def _change(effect: Effect) -> str:
    """The relative change and its interval, in percent; the difference where a is zero."""
    found = effect.change
    if found is None:
        shown = effect.difference * effect.metric.scale
        return f"{shown.value:+.3g} [{shown.low:+.3g}, {shown.high:+.3g}]"
    return f"{found.value:+.1%} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _detectable(effect: Effect) -> str:
    """The smallest change that such a run finds four times out of five."""
    if effect.a > 0:
        return f"±{effect.detectable / effect.a:.1%}"
    return f"±{effect.detectable * effect.metric.scale:.3g}"


def side_rows(report: AbReport) -> list[tuple[str, str]]:
    """What was compared, and where."""
    machine = report.machine
    return [
        ("a", report.sides["a"] or "(defaults)"),
        ("b", report.sides["b"] or "(defaults)"),
        ("workload", ", ".join(f"{k} {v}" for k, v in report.workload.items() if v is not None)),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_1m']}"),
    ]


EFFECT_HEADINGS = ("", "a", "b", "change", "b is", "would show")


def effect_rows(report: AbReport) -> list[tuple[str, ...]]:
    """A row for each metric, the primary one first."""
    return [
        (
            effect.metric.label,
            f"{effect.a * effect.metric.scale:,.4g}",
            f"{effect.b * effect.metric.scale:,.4g}",
            _change(effect),
            effect.word,
            _detectable(effect),
        )
        for effect in report.findings.effects
    ]


def evidence_rows(report: AbReport) -> list[tuple[str, str, str]]:
    """A row for each fact; those that differ are marked."""
    a, b = report.evidence["a"], report.evidence["b"]
    different = differing(a, b)
    return [
        (name + " ≠" * (name in different), _fact(a.get(name)), _fact(b.get(name)))
        for name in sorted(a | b)
    ]


def remarks(report: AbReport) -> list[str]:
    """All that is no figure and no verdict, a line each."""
    return [
        _method(report),
        _noise(report),
        *_quality(report),
        *(f"Note: {note}" for note in report.notes),
        *(f"Why: {reason}" for reason in report.verdict.reasons),
    ]


def _noise(report: AbReport) -> str:
    """What side a beside itself gave."""
    noise = report.findings.noise
    if noise is None:
        return "A/A: not measured."
    word = "no difference shown" if noise.word == "not shown" else "a difference, where none is"
    design = f"{noise.pairs} pairs, {noise.confidence:.0%}"
    return f"A/A, side a with itself ({design}): {_change(noise)}: {word}."


def _quality(report: AbReport) -> list[str]:
    """Both sides' predictions beside float32's."""
    quality = report.quality
    if quality is None:
        return []
    lines = [
        f"Side {side}: KL to float32 {d.mean_kl:.5f} nats/token, perplexity "
        f"{d.perplexity_change:+.2%}, same top token {d.same_top_share:.1%}."
        for side, d in (("a", quality.a), ("b", quality.b))
    ]
    return [*lines, "Quality: the same." if quality.same else "Quality: side b's is worse."]


def _method(report: AbReport) -> str:
    """How it was measured, in a line."""
    settings, findings = report.settings, report.findings
    others = "".join(
        f", {effect.confidence:.2%} of each other" for effect in findings.secondary[:1]
    )
    return (
        f"{len(report.measured.pairs)} pairs of blocks of {settings.requests} requests after "
        f"{settings.warmup} of warm-up, seed {settings.seed}. {settings.primary} decides. "
        f"Intervals hold with {settings.confidence:.0%}{others} (BCa bootstrap over pairs; a word "
        "also asks an exchange of labels)."
    )


def _fact(value: str | float | None) -> str:
    """A piece of evidence."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,.4g}"
