"""A request's waterfall in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_BAR = 40  # characters
_NAMED = 3  # requests that are named for one cause
_CAUSES = {
    "step": "a step was running when it came",
    "budget": "the steps' token budget went to others",
    "sequences": "as many sequences ran as may run at once",
    "blocks": "too few KV blocks were left",
    "prefix": "its beginning was being computed for another prompt, to be found in the cache",
    "preempted": "it had to give its blocks up to older requests",
    None: "what ran meanwhile is not known any more",
}
_WAITING = ("queue", "gap")
_COLOURS = {"queue": "red", "gap": "red", "prefill": "green", "decode": "yellow"}


@dataclass(slots=True)
class _Row:
    """Neighbouring parts that are shown as one."""

    name: str
    start_ms: float
    duration_ms: float
    chunks: int = 0
    tokens: int = 0
    others: int = 0  # tokens of other prompts in the same steps

    @property
    def note(self) -> str:
        """What there is to say of it beside its time."""
        if not self.chunks:
            return ""
        pieces = f" in {self.chunks} chunks" if self.chunks > 1 else ""
        beside = f", beside {self.others} of others" if self.others else ""
        return _count(self.tokens, "token") + pieces + beside


@dataclass(slots=True)
class _Wait:
    """All waiting for one cause."""

    duration_ms: float = 0.0
    decodes: int = 0
    tokens_of: dict[str, int] = field(default_factory=dict)
    others: int = 0


def show_waterfall(found: dict[str, Any], console: Console) -> None:
    """Print what the server says of a request, for people."""
    for line in _head(found):
        console.print(line, soft_wrap=True)
    rows = list(_rows(found["parts"]))
    total_ms = sum(row.duration_ms for row in rows)
    console.print()
    console.print(_bars(rows, total_ms, "█▏" if console.encoding.startswith("utf") else "#|"))
    waits = list(_waits(found["parts"]))
    if waits:
        console.print()
    for line in waits:
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_evidence(found["active"]), soft_wrap=True)


def _head(found: dict[str, Any]) -> Iterator[str]:
    reason = found["finish_reason"]
    ended = found["status"] + (f" ({reason})" if reason else "")
    model = escape(found["model"])
    yield f"[bold]{escape(found['id'])}[/]  {found['endpoint']}  {model}  {ended}"
    usage = found["usage"]
    facts = [
        "no content" if found["ttft_ms"] is None else f"[bold]TTFT {found['ttft_ms']:.1f} ms[/]",
        f"{_count(usage['prompt_tokens'], 'prompt token')}, {usage['cached_tokens']} cached",
        f"{usage['completion_tokens']} generated",
    ]
    if found["ttft_ms"] is not None and found["predicted_ttft_ms"] is not None:
        facts[0] += f", predicted {found['predicted_ttft_ms']:.1f}"
    if found["tpot_ms"] is not None:
        facts[-1] += f", {found['tpot_ms']:.1f} ms each"
    if found["e2e_ms"] is not None and found["stream"]:
        facts.append(f"{found['e2e_ms']:.1f} ms in all")
    yield " · ".join(facts)


def _rows(parts: Iterable[dict[str, Any]]) -> Iterator[_Row]:
    """One row for each run of waiting, and one for all that was done chunk by chunk."""

    def shown_as(part: dict[str, Any]) -> str:
        return "prefill" if part["part"] == "schedule" else str(part["part"])

    for name, run in groupby(parts, shown_as):
        together = list(run)
        chunks = [part for part in together if part["part"] == "prefill"]
        yield _Row(
            name,
            together[0]["start_ms"],
            sum(part["duration_ms"] for part in together),
            len(chunks),
            sum(chunk["tokens"] for chunk in chunks),
            sum(other["tokens"] for chunk in chunks for other in chunk.get("behind", ())),
        )


def _bars(rows: Iterable[_Row], total_ms: float, marks: str) -> Table:
    """Each row's place in time; ``marks`` are a whole cell, and what takes less than one."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        scale = _BAR / total_ms
        begin = min(round(row.start_ms * scale), _BAR - 1)
        cells = round((row.start_ms + row.duration_ms) * scale) - begin
        bar = Text(" " * begin, style=_COLOURS.get(row.name, "cyan"))
        bar.append(marks[0] * cells if cells > 0 else marks[1])
        share = f"{row.duration_ms / total_ms:.0%}"
        table.add_row(row.name, f"{row.duration_ms:.1f} ms", share, bar, row.note)
    return table


def _waits(parts: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Say for what the request waited, the longest first, and who was served meanwhile."""
    sums: dict[tuple[str, str | None], _Wait] = {}
    for part in parts:
        if part["part"] not in _WAITING:
            continue
        wait = sums.setdefault((part["part"], part.get("cause")), _Wait())
        wait.duration_ms += part["duration_ms"]
        wait.decodes = max(wait.decodes, part.get("decodes", 0))
        wait.others = max(wait.others, part.get("behind_others", {}).get("requests", 0))
        for other in part.get("behind", ()):
            tokens = wait.tokens_of.get(other["id"], 0) + other["tokens"]
            wait.tokens_of[other["id"]] = tokens
    for (name, cause), wait in sorted(sums.items(), key=lambda entry: -entry[1].duration_ms):
        why = _CAUSES.get(cause, cause)
        yield f"[bold]{name}[/] {wait.duration_ms:.1f} ms: {why}"
        yield from _served_meanwhile(wait)


def _served_meanwhile(wait: _Wait) -> Iterator[str]:
    ranked = sorted(wait.tokens_of.items(), key=lambda entry: -entry[1])
    for request_id, tokens in ranked[:_NAMED]:
        yield f"    {escape(request_id)} had {_count(tokens, 'prompt token')} computed"
    others = len(ranked[_NAMED:]) + wait.others
    if others:
        yield f"    and so had {_count(others, 'other')}"
    if wait.decodes:
        yield f"    {_count(wait.decodes, 'stream')} got their next tokens"


def _evidence(active: dict[str, Any]) -> str:
    kernels = [str(active[key]) for key in ("backend", "isa", "compute") if key in active]
    facts = [" ".join(kernels), f"keys and values in {active['kv_cache_dtype']}"]
    if "threads" in active:
        facts.append(_count(active["threads"], "thread"))
    facts.append(_count(active["chunks"], "chunk"))
    if active["saved_ms"]:
        facts.append(f"the prefix cache saved some {active['saved_ms']:.0f} ms")
    if active["preemptions"]:
        facts.append(_count(active["preemptions"], "preemption"))
    return "; ".join(facts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
