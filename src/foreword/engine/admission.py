"""Whether a request may queue: refuse at once what would come too late, and say for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from foreword.config.admission import AdmissionConfig
from foreword.core.request import Request
from foreword.engine.engine import Engine
from foreword.errors import OverloadedError, QueueTimeoutError
from foreword.sched import Forecast, Sequence

_LATE_SHARE = 0.05  # of those admitted
_MOST_MARGIN = 1.0
_LEARNING = 0.05  # how much one of them changes the margin


@dataclass(slots=True)
class _Promise:
    """What a request was admitted for.

    Attributes:
        due_s: when its first token is due, on the engine's clock.
        slack_s: for how long others may still go ahead of it, as predicted.
    """

    request: Request
    due_s: float
    slack_s: float


class Admission:
    """Keeps an engine's queue within its limits, and those in it within their SLOs.

    A request is admitted if it is predicted to keep its SLO, and if none of those that it would
    pass, and that would keep theirs, would miss it by that. So order by length costs nobody what
    was promised. Another tenant's share may, and a higher priority where the policy goes by it.
    Whoever wants nothing generated has no SLO.

    What is ahead of a request is stretched by a margin that follows what comes of forecasts, so
    that one in twenty of those admitted is late: up with each that is, down with each that is not
    (Robbins and Monro, A Stochastic Approximation Method, 1951).

    To be called under the lock that guards the engine.
    """

    def __init__(self, engine: Engine, config: AdmissionConfig) -> None:
        self._engine = engine
        self._config = config
        self._by_priority = engine.config.scheduler.scheduling_policy == "priority"
        self._promises: dict[str, _Promise] = {}
        self._margin = 0.0  # of forecasts

    @property
    def has_room(self) -> bool:
        """Whether another request may queue, whatever its SLO."""
        engine, config = self._engine, self._config
        return (
            engine.num_queued < config.max_queue_requests
            and engine.scheduler.num_waiting_tokens < config.max_queue_tokens
        )

    @property
    def timeout_s(self) -> float:
        """How long a request may wait for its first step."""
        return self._config.queue_timeout_s

    def admit(self, prompt: Sequence) -> float:
        """Let a request queue; `forget` is to be called when it is over.

        Args:
            prompt: what `Engine.prepare` made of it.

        Returns:
            Seconds until its first token, as predicted.

        Raises:
            InvalidRequestError: it could not be served in any case.
            OverloadedError: it would come too late, or make others come too late.
        """
        engine, request = self._engine, prompt.tracked.request
        engine.check(request)
        forecast = engine.forecast(prompt)
        if not self.has_room:
            num_queued = engine.num_queued
            raise OverloadedError(
                f"the queue is full: {num_queued} waiting, with "
                f"{engine.scheduler.num_waiting_tokens} tokens to compute",
                retry_after_s=forecast.ttft_s / num_queued,  # about when the next of them begins
            )
        self._promise(request, forecast)
        return forecast.ttft_s

    def first_token(self, request_id: str, at_s: float) -> None:
        """Note when a request had its first token, and learn from it; once is enough."""
        promise = self._promises.pop(request_id, None)
        if promise is not None:
            late = at_s > promise.due_s
            margin = self._margin + _LEARNING * (late - _LATE_SHARE)
            self._margin = min(max(0.0, margin), _MOST_MARGIN)

    def forget(self, request_id: str) -> None:
        """Note that a request is over."""
        self._promises.pop(request_id, None)

    def timed_out(self, request: Request) -> QueueTimeoutError:
        """What to tell a request that has waited for too long."""
        return QueueTimeoutError(
            f"the request has waited {self.timeout_s:g} s for its first step, as long as it may",
            retry_after_s=self._engine.forecast(self._engine.prepare(request)).ttft_s,
        )

    def _promise(self, request: Request, forecast: Forecast) -> None:
        now = self._engine.clock()
        slo_s = self._slo_s(request)
        ttft_s = forecast.ttft_s + self._margin * max(0.0, forecast.ttft_s - forecast.work_s)
        slack_s = inf if slo_s is None else request.arrival_s + slo_s - now - ttft_s
        if slo_s is not None and slack_s < 0:
            raise _too_late(forecast, slo_s, -slack_s)
        passed = self._promises_to(forecast.behind)
        hurt = [
            each
            for each in passed
            if 0 <= each.slack_s < forecast.delay_s(each.due_s - now) and self._binds(each, request)
        ]
        if hurt:
            raise OverloadedError(
                "it would go ahead of requests that came before it, and "
                f"{len(hurt)} of these would miss their ttft_slo_ms",
                retry_after_s=max(each.due_s for each in hurt) - now,
            )
        for each in passed:
            each.slack_s -= forecast.delay_s(each.due_s - now)
        if slo_s is not None:
            promise = _Promise(request, request.arrival_s + slo_s, slack_s)
            self._promises[request.request_id] = promise

    def _binds(self, promise: _Promise, request: Request) -> bool:
        """Whether a promise keeps a request from going first."""
        other = promise.request
        higher = self._by_priority and request.urgency.priority < other.urgency.priority
        return other.tenant == request.tenant and not higher

    def _promises_to(self, request_ids: Iterable[str]) -> list[_Promise]:
        if not self._promises:
            return []
        return [self._promises[each] for each in request_ids if each in self._promises]

    def _slo_s(self, request: Request) -> float | None:
        if request.max_tokens == 0:
            return None
        slo_ms = request.urgency.ttft_slo_ms or self._config.ttft_slo_ms
        return None if slo_ms is None else slo_ms / 1000


def _too_late(forecast: Forecast, slo_s: float, late_s: float) -> OverloadedError:
    what = (
        f"the first token would come {(slo_s + late_s) * 1e3:.4g} ms after the request, over its "
        f"ttft_slo_ms of {slo_s * 1e3:g}"
    )
    if forecast.work_s > slo_s:
        return OverloadedError(
            f"{what}. Computing the prompt alone takes {forecast.work_s * 1e3:.4g} ms: ask with a "
            "larger ttft_slo_ms, or with less"
        )
    return OverloadedError(what, retry_after_s=late_s)
