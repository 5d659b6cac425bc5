from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foreword.bench.load.record import ErrorKind, Failure, LoadResult, RequestRecord
from foreword.bench.load.summary import LoadSummary, Slo, summarise
from foreword.bench.stats import Percentiles


def record(index: int, ttft_s: float = 0.1, **members: Any) -> RequestRecord:
    """Sent 50 ms late at second ``index``; four pieces 10 ms apart, eight tokens."""
    sent_s = index + 0.05
    defaults: dict[str, Any] = {
        "kind": "even" if index % 2 == 0 else "odd",
        "intended_s": float(index),
        "sent_s": sent_s,
        "token_times_s": tuple(sent_s + ttft_s + 0.01 * place for place in range(4)),
        "ended_s": sent_s + ttft_s + 0.04,
        "prompt_tokens": 20,
        "cached_tokens": 4,
        "completion_tokens": 8,
        "tokens_counted_by": "usage",
    }
    return RequestRecord(index=index, **defaults | members)


def failed(index: int, kind: ErrorKind) -> RequestRecord:
    return record(index, failure=Failure(kind, "for a test"))


def summary(*records: RequestRecord, slo: Slo | None = None) -> LoadSummary:
    return summarise(LoadResult(records, 0.0, 10.0), slo)


def test_latencies_of_good_requests() -> None:
    found = summary(*(record(index, 0.1 + 0.01 * index) for index in range(5)))
    assert found.ttft_ms is not None
    assert found.ttft_ms.count == 5
    assert found.ttft_ms.p50 == pytest.approx(120)
    assert found.ttft_ms.max == pytest.approx(140)
    assert found.intended_ttft_ms is not None
    assert found.intended_ttft_ms.p50 == pytest.approx(170)
    assert found.send_lag_ms is not None
    assert found.send_lag_ms.max == pytest.approx(50)
    assert found.itl_ms is not None
    assert found.itl_ms.count == 15  # one fewer than pieces: the first has its TTFT
    assert found.itl_ms.p50 == pytest.approx(10)
    assert found.tpot_ms is not None
    assert found.tpot_ms.p50 == pytest.approx(30 / 7)
    assert found.e2e_ms is not None
    assert found.e2e_ms.p50 == pytest.approx(150)
    assert (found.prompt_tokens, found.cached_tokens, found.completion_tokens) == (100, 20, 40)
    assert found.duration_s == pytest.approx(4.23)
    assert set(found.ttft_ms_by_kind) == {"even", "odd"}
    assert found.ttft_ms_by_kind["odd"].p50 == pytest.approx(120)


def test_errors_are_told_apart_and_never_a_latency() -> None:
    good = [record(0, 0.5), record(1, 0.5)]
    bad = [failed(2, ErrorKind.NO_CONTENT), failed(3, ErrorKind.RESET), failed(4, ErrorKind.RESET)]
    found = summary(*good, *bad, failed(5, ErrorKind.INTERRUPTED))
    assert (found.requests, found.good, found.interrupted) == (5, 2, 1)
    assert found.errors == {"reset": 2, "no content": 1}
    assert found.ttft_ms is not None
    assert (found.ttft_ms.count, found.ttft_ms.p50) == (2, pytest.approx(500))
    assert found.completion_tokens == 16


def test_refusals_are_a_kind_of_their_own_and_count_against_goodput() -> None:
    refused = [
        replace(failed(index, ErrorKind.OVERLOADED), retry_after_s=told_s, ended_s=index + 0.06)
        for index, told_s in enumerate((2.0, None, 5.0))
    ]
    found = summary(*refused, record(3), slo=Slo(ttft_ms=200.0))
    assert found.errors == {"overloaded": 3}
    assert found.goodput_share == 0.25
    assert found.refusal_ms is not None
    assert found.refusal_ms.max == pytest.approx(10)
    [note] = [note for note in found.notes if "come again" in note]
    assert note.startswith("2 of 3 refusals say when to come again: after 2 s")
    assert summary(record(0)).refusal_ms is None


def test_nothing_good_is_no_crash() -> None:
    for records in ((), (failed(0, ErrorKind.REFUSED),)):
        found = summary(*records, slo=Slo(ttft_ms=1.0))
        assert found.ttft_ms is found.itl_ms is None
        assert (found.good, found.request_rps, found.goodput_rps) == (0, 0.0, 0.0)


def test_goodput_counts_what_kept_all_limits_from_when_it_was_due() -> None:
    fast, slow = record(0, 0.1), record(1, 0.2)
    broken = failed(2, ErrorKind.TRUNCATED)
    found = summary(fast, slow, broken, slo=Slo(ttft_ms=160))
    assert found.goodput_share == pytest.approx(1 / 3)  # 150 ms from when it was due
    assert found.goodput_rps == pytest.approx(1 / found.duration_s)
    assert summary(fast, slow, broken, slo=Slo(ttft_ms=140)).goodput_share == 0
    assert summary(fast, slow, slo=Slo(tpot_ms=4)).goodput_share == 0
    assert summary(fast, slow, slo=Slo(ttft_ms=900, tpot_ms=5)).goodput_share == 1
    assert summary(fast).goodput_share is None
    own = replace(slow, ttft_slo_ms=900)
    assert summary(fast, own, slo=Slo(ttft_ms=160)).goodput_share == 1, "it asked for less itself"


def test_the_servers_account_beside_the_clients() -> None:
    def timing(ttft_ms: float, completion_tokens: int = 8) -> dict[str, Any]:
        usage = {"prompt_tokens": 20, "cached_tokens": 4, "completion_tokens": completion_tokens}
        parts = [
            {"part": "elsewhere", "duration_ms": 0.0},
            {"part": "prefill", "duration_ms": 30.0},
            {"part": "gap", "duration_ms": ttft_ms - 70.0},
            {"part": "prefill", "duration_ms": 40.0},
        ]
        return {"ttft_ms": ttft_ms, "usage": usage, "parts": parts}

    records = [record(0, timing=timing(98)), record(1, timing=timing(96, 7)), record(2)]
    server = summary(*records).server
    assert server is not None
    assert (server.requests, server.count_mismatches) == (2, 1)
    assert server.ttft_ms.p50 == pytest.approx(97)
    assert server.remainder_ms.p50 == pytest.approx(3)
    assert server.parts_ms["prefill"].p50 == pytest.approx(70)
    assert list(server.parts_ms) == ["prefill", "gap", "elsewhere"]  # as they happen
    assert summary(record(0)).server is None


def test_tokens_of_each_piece_make_tpot_exact() -> None:
    counted = record(0, token_counts=(4, 1, 1, 2))
    assert counted.tpot_s == pytest.approx(0.03 / 4)


def test_notes_say_what_numbers_hide() -> None:
    plain = summary(*(record(index, completion_tokens=4) for index in range(100)))
    assert plain.notes == ()
    (few,) = summary(record(0, completion_tokens=4)).notes
    assert "p99 of 1 requests" in few
    assert any("2.0 tokens a piece" in note for note in summary(record(0)).notes)
    uncounted = record(0, tokens_counted_by="pieces")
    assert any("counts no tokens" in note for note in summary(uncounted).notes)
    at_once = replace(record(0), token_times_s=(0.5,) * 4)
    assert any("bursts" in note for note in summary(at_once).notes)


def test_warmup_is_dropped_by_place_in_the_plan() -> None:
    result = LoadResult(tuple(record(index) for index in range(4)), 0.0, 9.0, partial=True)
    kept = result.without_warmup(3)
    assert [each.index for each in kept.records] == [3]
    assert kept.partial


@pytest.mark.parametrize("count", [1, 2, 99, 100])
def test_percentiles_lie_between_neighbours(count: int) -> None:
    found = Percentiles.of(range(count))
    assert found.max == count - 1
    assert found.p50 == pytest.approx((count - 1) / 2)
    assert found.p99 == pytest.approx(0.99 * (count - 1))
