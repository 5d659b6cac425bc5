"""Send a plan and collect what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus

from foreword.bench.load.exchange import Exchange
from foreword.bench.load.plan import PlannedRequest
from foreword.bench.load.reading import StreamReading
from foreword.bench.load.record import ErrorKind, Failure, LoadResult, RequestRecord
from foreword.bench.load.target import Target

_PIECES_AT_ONCE = 8  # of a finished response that are read before newer arrivals get their turn


async def run_load(
    target: Target,
    requests: Sequence[PlannedRequest],
    *,
    concurrency: int | None = None,
    timeout_s: float = 300.0,
    on_record: Callable[[RequestRecord], None] | None = None,
    stop: asyncio.Event | None = None,
) -> LoadResult:
    """Send every request when it is due, each on a connection of its own.

    Open loop: requests with an ``intended_s`` go out then, whatever became of the earlier ones.
    Closed loop: requests without one go out as soon as ``concurrency`` leaves room. With both, a
    request may be sent later than it was due; its record has both times.

    Args:
        requests: in the order of sending.
        concurrency: the most requests that run at once; None for no limit.
        timeout_s: the longest that one request may take from its connection to its end.
        on_record: called with each record as it is made.
        stop: once it is set, nothing more is sent, running requests end as ``interrupted``, and
            the result is marked partial.
    """
    payloads = [target.payload(request) for request in requests]  # before the clock starts
    loop = asyncio.get_running_loop()
    address = await loop.run_in_executor(None, target.find)
    with no_garbage_collection():
        client = _Client(target, address, timeout_s, on_record)
        sending = asyncio.ensure_future(client.send_all(requests, payloads, concurrency))
        stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            partial = not sending.done()
            if partial:
                client.interrupt()
            records = await sending
        finally:
            sending.cancel()
            stopping.cancel()
        duration_s = time.monotonic() - client.began_s
    return LoadResult(records, client.began_s, duration_s, partial)


class _Client:
    """Sends the requests of one run; ``began_s`` is when it was made."""

    def __init__(
        self,
        target: Target,
        address: tuple[str, int],
        timeout_s: float,
        on_record: Callable[[RequestRecord], None] | None,
    ) -> None:
        self.began_s = time.monotonic()
        self._target = target
        self._address = address
        self._timeout_s = timeout_s
        self._on_record = on_record
        self._sent: list[asyncio.Task[RequestRecord]] = []
        self._running: set[Exchange] = set()
        self._dispatching: asyncio.Task[None] | None = None

    async def send_all(
        self,
        requests: Sequence[PlannedRequest],
        payloads: Sequence[bytes],
        concurrency: int | None,
    ) -> tuple[RequestRecord, ...]:
        """Return the records of what was sent: everything, unless `interrupt` was called."""
        room = asyncio.Semaphore(concurrency or len(requests))
        self._dispatching = asyncio.create_task(self._dispatch(requests, payloads, room))
        try:
            await asyncio.wait({self._dispatching})
            return tuple(await asyncio.gather(*self._sent))
        finally:
            for task in (self._dispatching, *self._sent):
                task.cancel()

    def interrupt(self) -> None:
        """Send nothing more, and end what runs."""
        if self._dispatching is not None:
            self._dispatching.cancel()
        for exchange in self._running:
            exchange.finish(Failure(ErrorKind.INTERRUPTED, "the run was ended"))

    async def _dispatch(
        self, requests: Sequence[PlannedRequest], payloads: Sequence[bytes], room: asyncio.Semaphore
    ) -> None:
        for request, payload in zip(requests, payloads, strict=True):
            due_s = request.intended_s
            while due_s is not None and (wait_s := due_s - self._elapsed_s()) > 0:
                await asyncio.sleep(wait_s)
            await room.acquire()
            intended_s = self._elapsed_s() if due_s is None else due_s
            task = asyncio.create_task(self._send(request, payload, intended_s))
            task.add_done_callback(lambda _: room.release())
            self._sent.append(task)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    async def _send(
        self, request: PlannedRequest, payload: bytes, intended_s: float
    ) -> RequestRecord:
        loop = asyncio.get_running_loop()
        exchange = Exchange(payload)
        late = Failure(ErrorKind.TIMEOUT, f"not over after {self._timeout_s:g} s")
        timer = loop.call_later(self._timeout_s, exchange.finish, late)
        tls_host = self._target.host if self._target.tls else None
        connecting = asyncio.create_task(exchange.run(self._address, tls_host))
        self._running.add(exchange)
        try:
            failure = await exchange.over
        finally:
            self._running.discard(exchange)
            timer.cancel()
            connecting.cancel()
            exchange.finish(None)
        reading = await _read(exchange)
        record = _record(request, intended_s, exchange, reading, failure, self.began_s)
        if self._on_record is not None:
            self._on_record(record)
        return record


async def _read(exchange: Exchange) -> StreamReading:
    """Read a body that is complete, a few pieces at a time: what arrives meanwhile comes first."""
    reading = StreamReading()
    for number, (time_s, data) in enumerate(exchange.body, 1):
        reading.feed(time_s, data)
        if number % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)
    reading.end(exchange.ended_s)
    return reading


def _record(
    request: PlannedRequest,
    intended_s: float,
    exchange: Exchange,
    reading: StreamReading,
    failure: Failure | None,
    began_s: float,
) -> RequestRecord:
    def since(time_s: float | None) -> float | None:
        return None if time_s is None else time_s - began_s

    times_s = tuple(time_s - began_s for time_s in reading.times_s)
    return RequestRecord(
        index=request.index,
        kind=request.kind,
        intended_s=intended_s,
        sent_s=since(exchange.sent_s),
        first_byte_s=since(exchange.first_byte_s),
        token_times_s=times_s,
        token_counts=reading.token_counts,
        ended_s=exchange.ended_s - began_s,
        failure=_judge(exchange, reading, failure),
        status=exchange.status,
        retry_after_s=exchange.retry_after_s,
        finish_reason=reading.finish_reason,
        planned_prompt_tokens=request.prompt_tokens,
        ttft_slo_ms=request.urgency.ttft_slo_ms,
        prompt_tokens=reading.prompt_tokens,
        cached_tokens=reading.cached_tokens,
        completion_tokens=reading.completion_tokens or len(times_s),
        tokens_counted_by="usage" if reading.completion_tokens else "pieces",
        timing=reading.timing,
    )


def _judge(exchange: Exchange, reading: StreamReading, failure: Failure | None) -> Failure | None:
    """Say what was wrong, the cause before its consequences; None: nothing."""
    if exchange.status not in (None, 200):
        overloaded = exchange.status == HTTPStatus.TOO_MANY_REQUESTS
        kind = ErrorKind.OVERLOADED if overloaded else ErrorKind.HTTP_STATUS
        return Failure(kind, f"{exchange.status}: {_beginning(exchange)}")
    if exchange.status == 200 and not exchange.content_type.startswith("text/event-stream"):
        content = exchange.content_type or "no content type"
        return Failure(ErrorKind.BAD_BODY, f"{content} instead of a stream: {_beginning(exchange)}")
    if reading.failure is not None:
        return reading.failure
    if failure is not None and not reading.done:
        return failure
    if not reading.complete:
        return Failure(ErrorKind.TRUNCATED, "the stream ended without a finish_reason or [DONE]")
    if not reading.times_s:
        return Failure(ErrorKind.NO_CONTENT, "a stream without any text")
    return None


def _beginning(exchange: Exchange) -> str:
    body = b"".join(data for _, data in exchange.body)
    return " ".join(body[:200].decode(errors="replace").split())


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep collections out, which stop everything for milliseconds and find nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
