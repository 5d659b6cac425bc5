"""A load run against servers that behave, and against servers that do not; all on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from support.raw_server import DONE, HEAD, Pause, Reset, Step, chunk, raw_server
from support.waiting import HANG_S

from foreword.bench.load.mock import MockRequest, MockServer, Script, steady
from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.record import ErrorKind, LoadResult, RequestRecord
from foreword.bench.load.run import run_load
from foreword.bench.load.target import Target


def plan(count: int, *, at_s: float | None = None, max_tokens: int = 4) -> list[PlannedRequest]:
    message = Message("user", Passage("hello", 1))
    return [
        PlannedRequest(
            index=index,
            kind="any",
            messages=(message,),
            max_tokens=max_tokens,
            intended_s=None if at_s is None else index * at_s,
        )
        for index in range(count)
    ]


def load(url: str, requests: Sequence[PlannedRequest], **options: Any) -> LoadResult:
    return asyncio.run(run_load(Target(url=url, **options.pop("target", {})), requests, **options))


def on_mock(
    behaviour: Callable[[MockRequest], Script],
    use: Callable[[Target], Awaitable[LoadResult]],
) -> LoadResult:
    async def run() -> LoadResult:
        async with MockServer(behaviour) as server:
            return await use(Target(url=server.url))

    return asyncio.run(run())


def only(result: LoadResult) -> RequestRecord:
    (record,) = result.records
    return record


def failure_of(answer: Sequence[Step], **options: Any) -> tuple[ErrorKind, str]:
    with raw_server(answer) as url:
        record = only(load(url, plan(1), **options))
    assert record.failure is not None
    assert not record.ok
    return record.failure.kind, record.failure.detail


def test_times_are_those_of_the_server() -> None:
    result = on_mock(
        lambda request: Script(0.03, (0.01, 0.05, 0.01), tokens_per_piece=3, empty_pieces=2),
        lambda target: run_load(target, plan(2)),
    )
    for record in result.records:
        assert record.timing is not None
        assert record.sent_s is not None
        assert record.first_byte_s is not None
        written = [time_s - result.began_s for time_s in record.timing["written_s"]]
        received_s = record.timing["received_s"] - result.began_s
        times = record.token_times_s
        assert record.intended_s <= record.sent_s <= received_s <= record.first_byte_s < times[0]
        assert all(wrote <= read for wrote, read in zip(written, times, strict=True))
        # Both take turns on one event loop: a piece is read before the next is written.
        assert all(read < later for read, later in zip(times, written[1:], strict=False))
        assert record.ttft_s == pytest.approx(times[0] - record.sent_s)
        assert record.ttft_s >= 0.03
        assert record.e2e_s == pytest.approx(record.ttft_s + sum(record.itl_s))
        assert record.itl_s == pytest.approx([b - a for a, b in pairwise(times)])
        assert (record.completion_tokens, record.tokens_counted_by) == (12, "usage")
        assert record.tpot_s == pytest.approx(sum(record.itl_s) / 11)


def test_an_open_loop_waits_for_nobody() -> None:
    """Nobody is answered before all have asked."""
    stop = asyncio.Event()

    def behave(request: MockRequest) -> Script:
        if request.number == 7:
            stop.set()
        return Script(HANG_S)

    result = on_mock(behave, lambda target: run_load(target, plan(8, at_s=0.01), stop=stop))
    assert [record.intended_s for record in result.records] == [i * 0.01 for i in range(8)]
    assert all(record.sent_s is not None for record in result.records)


def test_what_a_limit_holds_back_is_late_from_when_it_was_due() -> None:
    result = on_mock(
        steady(0.1, 0.0), lambda target: run_load(target, plan(3, at_s=0.0), concurrency=1)
    )
    last = result.records[-1]
    assert last.ttft_s is not None
    assert last.intended_ttft_s is not None
    assert last.intended_ttft_s - last.ttft_s >= 0.19  # two others went before


def test_a_closed_loop_keeps_its_concurrency() -> None:
    running, most = 0, 0

    def behave(request: MockRequest) -> Script:
        nonlocal running, most
        running += 1
        most = max(most, running)
        return Script(0.1)

    def ended(_: RequestRecord) -> None:
        nonlocal running
        running -= 1

    result = on_mock(
        behave, lambda target: run_load(target, plan(9), concurrency=3, on_record=ended)
    )
    assert most == 3
    assert [record.index for record in result.records] == list(range(9))
    assert all(record.ok for record in result.records)


def test_an_ended_run_keeps_what_it_has() -> None:
    stop = asyncio.Event()

    def behave(request: MockRequest) -> Script:
        if request.number == 2:
            stop.set()
        return Script(0.01 if request.number < 2 else HANG_S)

    result = on_mock(behave, lambda target: run_load(target, plan(9), concurrency=1, stop=stop))
    assert result.partial
    kinds = [record.failure and record.failure.kind for record in result.records]
    assert kinds == [None, None, ErrorKind.INTERRUPTED]  # the other six were never sent


def test_a_whole_run_is_not_partial() -> None:
    assert not on_mock(steady(0.0, 0.0), lambda target: run_load(target, plan(2))).partial


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    record = only(load(url, plan(1)))
    assert record.failure is not None
    assert record.failure.kind is ErrorKind.REFUSED
    assert record.sent_s is None


def test_a_page_instead_of_a_stream() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<h1>hello</h1>"
    kind, words = failure_of([page])
    assert kind is ErrorKind.BAD_BODY
    assert "text/html" in words
    assert "<h1>hello" in words


def test_an_error_status_with_its_message() -> None:
    head = b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
    kind, words = failure_of([head, b'{"error": "full"}'])
    assert kind is ErrorKind.HTTP_STATUS
    assert "503" in words
    assert "full" in words


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([b"SSH-2.0-OpenSSH_9.6\r\n"], ErrorKind.BAD_BODY),
        ([HEAD, b'data: {"choices":[{"text":"\xff"}]}\n\n'], ErrorKind.BAD_BODY),
        ([HEAD, b"data: <h1>\n\n"], ErrorKind.BAD_BODY),
        ([HEAD], ErrorKind.TRUNCATED),
        ([HEAD, chunk("a")], ErrorKind.TRUNCATED),
        ([HEAD, DONE], ErrorKind.NO_CONTENT),
        ([HEAD, chunk(""), DONE], ErrorKind.NO_CONTENT),
        (
            [HEAD, chunk("a"), b'data: {"error":{"message":"out of memory"}}\n\n'],
            ErrorKind.SERVER_ERROR,
        ),
        ([HEAD, chunk("a"), Reset], ErrorKind.RESET),
        ([Reset], ErrorKind.RESET),
        ([b""], ErrorKind.RESET),
        ([Pause(HANG_S)], ErrorKind.TIMEOUT),
        ([HEAD, *(chunk("a"), Pause(0.02)) * 250], ErrorKind.TIMEOUT),
    ],
)
def test_bad_servers(answer: Sequence[Step], kind: ErrorKind) -> None:
    timeout_s = 0.5 if kind is ErrorKind.TIMEOUT else HANG_S
    assert failure_of(answer, timeout_s=timeout_s)[0] is kind


def test_a_server_that_dies_in_the_middle_of_a_run() -> None:
    good = [HEAD, chunk("a"), chunk("b"), DONE]
    with raw_server(good, good, [HEAD, chunk("a"), Reset], [Reset]) as url:
        result = load(url, plan(5), concurrency=1)
    kinds = [record.failure and record.failure.kind for record in result.records]
    assert kinds == [None, None, *[ErrorKind.RESET] * 3]
    assert not result.partial


def test_a_stream_is_over_with_its_last_event_even_if_the_connection_stays() -> None:
    framed = b"Transfer-Encoding: chunked\r\n\r\n"
    data = chunk("a") + DONE
    answer = HEAD.replace(b"\r\n\r\n", b"\r\n" + framed) + b"%x\r\n%s\r\n0\r\n\r\n" % (
        len(data),
        data,
    )
    with raw_server([answer, Pause(2 * HANG_S)]) as url:
        record = only(load(url, plan(1), timeout_s=HANG_S))
    assert record.ok


def test_the_key_and_the_settings_go_with_the_request() -> None:
    bodies: list[dict[str, Any]] = []

    def behave(request: MockRequest) -> Script:
        bodies.append(request.body)
        return Script(0.0)

    on_mock(
        behave,
        lambda target: run_load(
            Target(url=target.url + "/v1/", model="m", extra={"ignore_eos": True}), plan(1)
        ),
    )
    (body,) = bodies
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0, 4)
    assert body["stream"] is body["ignore_eos"] is True
