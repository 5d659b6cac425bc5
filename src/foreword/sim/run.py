"""A load run in virtual time: events in their order, and steps that take what a profile says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count

from foreword.bench.load.plan import PlannedRequest
from foreword.bench.load.record import ErrorKind, Failure, RequestRecord
from foreword.engine.outputs import RequestDelta
from foreword.errors import InvalidRequestError, OverloadedError
from foreword.sim.curve import Curve
from foreword.sim.replica import Replica
from foreword.sim.router import Router

_HAPPENING, _PLANNING = 0, 1  # at one instant all that happens comes before what is planned


@dataclass(slots=True)
class _Call:
    """A request from its sending to its last token."""

    planned: PlannedRequest
    intended_s: float
    sent_s: float
    replica: Replica
    token_times_s: list[float] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0


class Simulation:
    """Sends a plan to replicas and keeps what comes back, as a client would.

    Args:
        replicas: fresh ones.
        reply_s: from the end of a step to when the client has its tokens.
        on_record: called with each record as it is made.

    Attributes:
        records: what became of the requests that are over, for each replica.
        curves: what the replicas had to do over time.
        ended_s: when the last event was.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        router: Router,
        *,
        reply_s: float = 0.0,
        on_record: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        self._router = router
        self._reply_s = reply_s
        self._on_record = on_record
        self.records: list[list[RequestRecord]] = [[] for _ in replicas]
        self.curves = [Curve() for _ in replicas]
        self.ended_s = 0.0
        self._now_s = 0.0
        self._events: list[tuple[float, int, int, Callable[[], None]]] = []
        self._serial = count()  # what is said first of one instant is done first
        self._busy: set[int] = set()  # replicas that compute, or will plan without being told
        self._calls: dict[str, _Call] = {}

    def run(self, requests: Iterator[PlannedRequest], concurrency: int | None = None) -> None:
        """Run until nothing is left to do.

        Args:
            requests: in the order of sending, as for `foreword.bench.load.run.run_load`.
            concurrency: the most requests that are open at once; None: one, or where requests have
                times, any number.
        """
        self._requests = requests
        self._next = next(requests, None)
        closed_loop = self._next is not None and self._next.intended_s is None
        self._room = concurrency or (1 if closed_loop else None)
        self._held_back = False
        self._at(0.0, self._dispatch)
        while self._events:
            self._now_s, _, _, event = heappop(self._events)
            event()
        self.ended_s = self._now_s

    def _at(self, time_s: float, event: Callable[[], None], rank: int = _HAPPENING) -> None:
        heappush(self._events, (time_s, rank, next(self._serial), event))

    def _dispatch(self) -> None:
        """Send what is due, as far as there is room, and come back for the next."""
        while self._next is not None:
            due_s = self._next.intended_s
            if due_s is not None and due_s > self._now_s:
                self._at(due_s, self._dispatch)
                return
            self._held_back = self._room is not None and len(self._calls) >= self._room
            if self._held_back:
                return
            self._send(self._next, self._now_s if due_s is None else due_s)
            self._next = next(self._requests, None)

    def _send(self, planned: PlannedRequest, intended_s: float) -> None:
        replica = self._router.choose()
        prompt = planned.plain_prompt().token_ids
        assert prompt is not None
        call = _Call(planned, intended_s, self._now_s, replica, num_prompt_tokens=len(prompt))
        self._calls[str(planned.index)] = call
        ready_s = replica.receive(self._now_s, len(prompt))
        self._at(ready_s, partial(self._add, call, prompt))

    def _add(self, call: _Call, prompt: tuple[int, ...]) -> None:
        request_id, replica = str(call.planned.index), call.replica
        try:
            replica.add(
                self._now_s,
                request_id,
                prompt,
                call.planned.max_tokens,
                arrival_s=call.sent_s,
                urgency=call.planned.urgency,
            )
        except InvalidRequestError as error:
            self._close(request_id, Failure(ErrorKind.HTTP_STATUS, f"400: {error}"))
            return
        except OverloadedError as error:
            self._close(request_id, Failure(ErrorKind.OVERLOADED, f"429: {error}"))
            return
        if replica.number not in self._busy:
            self._busy.add(replica.number)
            self._at(self._now_s, partial(self._begin, replica), _PLANNING)

    def _begin(self, replica: Replica) -> None:
        ends_s = replica.begin(self._now_s)
        if ends_s is None:
            self._busy.discard(replica.number)
        else:
            self._at(ends_s, partial(self._end, replica))

    def _end(self, replica: Replica) -> None:
        for delta in replica.end():
            self._take(delta)
        self.curves[replica.number].note(self._now_s, replica.engine.stats)
        self._at(self._now_s + replica.between_steps_s, partial(self._begin, replica), _PLANNING)

    def _take(self, delta: RequestDelta) -> None:
        call = self._calls[delta.request_id]
        (completion,) = delta.completions
        arrived_s = self._now_s + self._reply_s
        call.token_times_s += [arrived_s] * len(completion.token_ids)
        call.num_cached_tokens = delta.num_cached_tokens
        if delta.finished:
            self._close(delta.request_id, None)

    def _close(self, request_id: str, failure: Failure | None) -> None:
        call = self._calls.pop(request_id)
        record = _record(call, failure, self._now_s + self._reply_s)
        self.records[call.replica.number].append(record)
        if self._on_record is not None:
            self._on_record(record)
        if self._held_back:
            self._held_back = False
            self._at(self._now_s, self._dispatch)


def _record(call: _Call, failure: Failure | None, ended_s: float) -> RequestRecord:
    times_s = tuple(call.token_times_s)
    return RequestRecord(
        index=call.planned.index,
        kind=call.planned.kind,
        intended_s=call.intended_s,
        sent_s=call.sent_s,
        first_byte_s=times_s[0] if times_s else None,
        token_times_s=times_s,
        ended_s=ended_s,
        failure=failure,
        status=int(failure.detail[:3]) if failure else 200,
        finish_reason=None if failure else "length",
        planned_prompt_tokens=call.planned.prompt_tokens,
        ttft_slo_ms=call.planned.urgency.ttft_slo_ms,
        prompt_tokens=call.num_prompt_tokens,
        cached_tokens=call.num_cached_tokens,
        completion_tokens=len(times_s),
        tokens_counted_by="usage",
    )
