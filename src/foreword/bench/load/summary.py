"""Many records in a few numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foreword.bench.load.record import ErrorKind, LoadResult, RequestRecord
from foreword.bench.stats import Percentiles
from foreword.errors import ConfigError
from foreword.metrics.partition import PARTS

_BUFFERED_SHARE = 0.5  # of the pieces that came in one read with the piece before


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a request must keep to count for goodput; None asks for nothing.

    A request that asked for a TTFT itself is held to that instead.

    Raises:
        ConfigError: a limit that nothing can keep.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None and not limit > 0:
                raise ConfigError(f"slo_{name}", f"must be above 0, not {limit}")

    @classmethod
    def stated(cls, ttft_ms: float | None, tpot_ms: float | None) -> Slo | None:
        """Give what was asked for; None: nothing was, so there is no goodput.

        Raises:
            ConfigError: as for the class.
        """
        if ttft_ms is None and tpot_ms is None:
            return None
        return cls(ttft_ms=ttft_ms, tpot_ms=tpot_ms)

    def kept_by(self, record: RequestRecord) -> bool:
        """Whether a request was answered within the limits; times count from when it was due."""
        ttft_ms = self.ttft_ms if record.ttft_slo_ms is None else record.ttft_slo_ms
        pairs = ((record.intended_ttft_s, ttft_ms), (record.tpot_s, self.tpot_ms))
        return record.ok and all(
            limit_ms is None or seconds is None or seconds * 1e3 <= limit_ms
            for seconds, limit_ms in pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """The server's account beside the client's, over requests that have both.

    Attributes:
        ttft_ms: the server's own.
        remainder_ms: the client's less the server's: the network, and both ends' sockets.
        count_mismatches: requests for which both do not count the same tokens.
        parts_ms: the parts of the server's TTFT.
    """

    requests: int
    ttft_ms: Percentiles
    remainder_ms: Percentiles
    count_mismatches: int
    parts_ms: Mapping[str, Percentiles]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """What a run showed. Latencies are those of good requests, in milliseconds.

    Attributes:
        requests: all that were sent, without those that the end of the run interrupted.
        duration_s: from when the first was due to the end of the last.
        itl_ms: between two pieces of text; one piece may be several tokens.
        intended_ttft_ms, intended_e2e_ms: from when a request was due. Where a client's limit or a
            stuck server holds requests back, only these have the wait in them.
        refusal_ms: from sending to the end of a 429.
        send_lag_ms: how late requests were sent.
        goodput_rps: requests per second that kept the SLO; None without one.
        goodput_share: their share of all.
        ttft_ms_by_kind: kinds as the workload names them.
    """

    requests: int
    good: int
    interrupted: int
    errors: Mapping[str, int]
    duration_s: float
    request_rps: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    output_tok_s: float
    ttft_ms: Percentiles | None
    tpot_ms: Percentiles | None
    itl_ms: Percentiles | None
    e2e_ms: Percentiles | None
    intended_ttft_ms: Percentiles | None
    intended_e2e_ms: Percentiles | None
    refusal_ms: Percentiles | None
    send_lag_ms: Percentiles | None
    goodput_rps: float | None
    goodput_share: float | None
    ttft_ms_by_kind: Mapping[str, Percentiles]
    server: ServerView | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data."""
        return asdict(self)


def summarise(result: LoadResult, slo: Slo | None = None) -> LoadSummary:
    """Summarise a run, or what is left of it without its warm-up."""
    judged = [r for r in result.records if not _interrupted(r)]
    good = [record for record in judged if record.ok]
    refused = [record for record in judged if _refused(record)]
    span_s = _span_s(judged)
    kept = None if slo is None else sum(map(slo.kept_by, judged))
    completion_tokens = sum(record.completion_tokens for record in good)
    return LoadSummary(
        requests=len(judged),
        good=len(good),
        interrupted=len(result.records) - len(judged),
        errors=dict(Counter(r.failure.kind.value for r in judged if r.failure).most_common()),
        duration_s=span_s,
        request_rps=_per_second(len(good), span_s),
        prompt_tokens=sum(record.prompt_tokens or 0 for record in good),
        cached_tokens=sum(record.cached_tokens or 0 for record in good),
        completion_tokens=completion_tokens,
        output_tok_s=_per_second(completion_tokens, span_s),
        ttft_ms=_spread(good, lambda r: r.ttft_s),
        tpot_ms=_spread(good, lambda r: r.tpot_s),
        itl_ms=_percentiles(gap_s * 1e3 for record in good for gap_s in record.itl_s),
        e2e_ms=_spread(good, lambda r: r.e2e_s),
        intended_ttft_ms=_spread(good, lambda r: r.intended_ttft_s),
        intended_e2e_ms=_spread(good, lambda r: r.intended_e2e_s),
        refusal_ms=_spread(refused, lambda r: r.ended_s - (r.sent_s or 0)),
        send_lag_ms=_spread(judged, lambda r: r.sent_s and r.sent_s - r.intended_s),
        goodput_rps=None if kept is None else _per_second(kept, span_s),
        goodput_share=kept / len(judged) if kept is not None and judged else None,
        ttft_ms_by_kind=_by_kind(good),
        server=_server_view(good),
        notes=tuple(_notes(good, refused)),
    )


def _interrupted(record: RequestRecord) -> bool:
    return record.failure is not None and record.failure.kind is ErrorKind.INTERRUPTED


def _refused(record: RequestRecord) -> bool:
    return record.failure is not None and record.failure.kind is ErrorKind.OVERLOADED


def _span_s(records: Sequence[RequestRecord]) -> float:
    if not records:
        return 0.0
    return max(r.ended_s for r in records) - min(r.intended_s for r in records)


def _per_second(count: int, span_s: float) -> float:
    return count / span_s if span_s else 0.0


def _spread(
    records: Iterable[RequestRecord], seconds: Callable[[RequestRecord], float | None]
) -> Percentiles | None:
    values = map(seconds, records)
    return _percentiles(value * 1e3 for value in values if value is not None)


def _percentiles(values: Iterable[float]) -> Percentiles | None:
    found = list(values)
    return Percentiles.of(found) if found else None


def _by_kind(good: Sequence[RequestRecord]) -> dict[str, Percentiles]:
    ttfts_ms: defaultdict[str, list[float]] = defaultdict(list)
    for record in good:
        ttfts_ms[record.kind].append((record.ttft_s or 0.0) * 1e3)
    return {kind: Percentiles.of(values) for kind, values in ttfts_ms.items()}


def _server_view(good: Sequence[RequestRecord]) -> ServerView | None:
    pairs = [
        (record, record.timing)
        for record in good
        if record.timing is not None and record.timing.get("ttft_ms") is not None
    ]
    if not pairs:
        return None
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for _, timing in pairs:
        for name, part_ms in parts_ms(timing).items():
            parts[name].append(part_ms)
    return ServerView(
        requests=len(pairs),
        ttft_ms=Percentiles.of(timing["ttft_ms"] for _, timing in pairs),
        remainder_ms=Percentiles.of((r.ttft_s or 0.0) * 1e3 - t["ttft_ms"] for r, t in pairs),
        count_mismatches=sum(_counts(r) != _server_counts(t) for r, t in pairs),
        parts_ms={name: Percentiles.of(parts[name]) for name in in_order(parts)},
    )


def parts_ms(timing: Mapping[str, Any]) -> dict[str, float]:
    """Sum a waterfall by part: one that comes in pieces (chunks, gaps) counts once."""
    sums: defaultdict[str, float] = defaultdict(float)
    for part in timing.get("parts", ()):
        sums[part["part"]] += part["duration_ms"]
    return dict(sums)


def in_order(parts: Iterable[str]) -> list[str]:
    """Give names of parts once each, in the order in which they happen."""
    known = list(PARTS)
    return sorted(set(parts), key=lambda part: known.index(part) if part in known else len(known))


def _counts(record: RequestRecord) -> tuple[int | None, ...]:
    return (record.prompt_tokens, record.cached_tokens, record.completion_tokens)


def _server_counts(timing: Mapping[str, Any]) -> tuple[int | None, ...]:
    usage = timing.get("usage", {})
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    return tuple(usage.get(name) for name in names)


def _notes(good: Sequence[RequestRecord], refused: Sequence[RequestRecord]) -> Iterable[str]:
    """What a reader must know to take the numbers for what they are."""
    pieces = sum(len(record.token_times_s) for record in good)
    tokens = sum(record.completion_tokens for record in good)
    at_once = sum(gap_s == 0 for record in good for gap_s in record.itl_s)
    if refused:
        told_s = [r.retry_after_s for r in refused if r.retry_after_s is not None]
        shortest, longest = min(told_s, default=0.0), max(told_s, default=0.0)
        yield (
            f"{len(told_s)} of {len(refused)} refusals say when to come again: after "
            f"{shortest:g} s at the earliest, {longest:g} s at the latest"
        )
    if good and len(good) < 100:
        yield f"p99 of {len(good)} requests is close to the worst of them"
    if pieces and at_once > _BUFFERED_SHARE * pieces:
        yield "text arrives in bursts: something on the way collects it, which hides the TTFT"
    if any(record.tokens_counted_by == "pieces" for record in good):
        yield "the server counts no tokens: each piece of text is taken for one"
    elif pieces and tokens > 1.05 * pieces:
        yield f"{tokens / pieces:.1f} tokens a piece of text: ITL is between pieces, TPOT per token"
