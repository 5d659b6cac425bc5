"""The engine for servers: the step loop in a thread of its own, streams on the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from foreword.config.admission import AdmissionConfig
from foreword.core.params import SamplingParams
from foreword.core.request import NOT_URGENT, Request, Urgency
from foreword.core.trace import RequestTrace, StepLog, StepRecord
from foreword.engine.admission import Admission
from foreword.engine.delta_stream import DeltaStream
from foreword.engine.engine import Engine, Step
from foreword.engine.outputs import RequestDelta
from foreword.engine.progress import Progress, thread_stacks
from foreword.errors import (
    BackendError,
    EngineStoppedError,
    ForewordError,
    InvalidRequestError,
)
from foreword.sched import SchedulerStats
from foreword.text.budget import size

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)

_DEFAULT_ADMISSION = AdmissionConfig()
_STUCK_AFTER_S = 10.0
_LAST_STEP_S = 5.0  # that the last step may take before the end goes on without it
_INLINE_CHARS = 4096  # tokenising this much takes less time than a hop to another thread
_QUICK_S = 1e-3  # so long a template may keep the event loop
_FIRST_WORDS_S = 2e-3  # that the next step waits at most for first tokens to leave


class AsyncEngine:
    """Serves many requests at once on one asyncio event loop.

    >>> engine = AsyncEngine(build_engine(EngineOptions(model="smollm2:135m")))
    >>> await engine.start()
    >>> async for delta in engine.generate(await engine.encode("Once upon"), SamplingParams()):
    ...     print(delta.completions[0].text, end="")
    >>> await engine.shutdown()

    The step loop runs in a thread of its own. A lock guards the `Engine`; the step loop has it
    while it plans a step and takes in its results, a millisecond or so, and not while the step is
    computed. So requests are added and dropped at once, and what waits can be looked at, however
    long a step takes.

    Attributes:
        steps: the latest steps.
        backend: what runs, as `Backend.describe` says it.
        on_step: called after each step, in the step loop's thread, once its results are on their
            way. To be set before `start`.

    Args:
        admission: what may queue.
        stuck_after_s: seconds without a step that began or ended, though there is work, after
            which the step loop counts as stuck.
    """

    def __init__(
        self,
        engine: Engine,
        admission: AdmissionConfig = _DEFAULT_ADMISSION,
        *,
        stuck_after_s: float = _STUCK_AFTER_S,
    ) -> None:
        self.tokenizer = engine.tokenizer
        self.config = engine.config
        self.model_name = engine.model_name
        self.tier_names = engine.tier_names
        self.max_model_len = engine.max_model_len
        self.steps: StepLog = engine.steps
        self.backend: Mapping[str, Any] = engine.backend.describe()
        self.on_step: Callable[[StepRecord], None] | None = None
        self._engine = engine
        self._admission = Admission(engine, admission)
        self._thread = threading.Thread(target=self._run, name="foreword-steps", daemon=True)
        # Guards all of these, and tells the step loop that there is something to do.
        self._lock = threading.Condition()
        self._between: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._progress = Progress(stuck_after_s)
        self._render_s = inf  # that the latest short conversation took
        # Touched on the event loop only.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: dict[str, DeltaStream] = {}
        self._errands: set[concurrent.futures.Future[Any]] = set()  # of `between_steps`
        self._drained: asyncio.Event | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._accepting = False

    async def start(self) -> None:
        """Start the step loop; requests are taken from now on."""
        self._loop = asyncio.get_running_loop()
        self._accepting = True
        self._watcher = asyncio.ensure_future(self._watch())
        self._thread.start()

    async def shutdown(self, drain_s: float = 0.0) -> None:
        """Take no more requests, let the running ones end, then stop the step loop.

        Requests that have not ended after ``drain_s`` seconds get an `EngineStoppedError`. A step
        that does not end then is left to itself.
        """
        self._accepting = False
        if self._streams:
            self._drained = asyncio.Event()
            try:
                await asyncio.wait_for(self._drained.wait(), drain_s)
            except asyncio.TimeoutError:
                self._end_all(EngineStoppedError("the server is shutting down"))
        with self._lock:
            self._stopping = True
            self._lock.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _LAST_STEP_S)
        self._drop_errands(EngineStoppedError("the server is shutting down"))
        if self._watcher is not None:
            self._watcher.cancel()
        if self._thread.is_alive():
            logger.error("the last step does not end: leaving without it")
        else:
            await asyncio.to_thread(self._engine.close)

    @property
    def accepting(self) -> bool:
        """Whether new requests are taken."""
        return self._accepting and self.healthy

    @property
    def has_room(self) -> bool:
        """Whether another request may queue, whatever its SLO."""
        with self._lock:
            return self._admission.has_room

    @property
    def healthy(self) -> bool:
        """Whether the step loop lives and, where there is work, gets on with it."""
        return self._thread.is_alive() and not self._progress.stuck

    def stats(self) -> SchedulerStats:
        """Counters and gauges."""
        with self._lock:
            return self._engine.stats()

    async def encode(self, text: str, **options: Any) -> list[int]:
        """`Tokenizer.encode`, without holding up the event loop."""
        if len(text) <= _INLINE_CHARS:
            return self.tokenizer.encode(text, **options)
        return await asyncio.to_thread(self.tokenizer.encode, text, **options)

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        on_rendered: Callable[[], None] = lambda: None,
        cache_salt: str = "",
        **options: Any,
    ) -> list[int]:
        """`Tokenizer.encode_chat`, without holding up the event loop.

        Args:
            on_rendered: called, perhaps in another thread, between the template and the tokenizer.
            cache_salt: as for `Tokenizer.encode`.
        """
        is_short = size(messages, _INLINE_CHARS) <= _INLINE_CHARS

        def encode() -> list[int]:
            began_s = time.monotonic()
            text = self.tokenizer.render_chat(messages, **options)
            if is_short:
                self._render_s = time.monotonic() - began_s
            on_rendered()
            return self.tokenizer.encode_rendered(text, cache_salt=cache_salt)

        # The template is somebody else's program: it runs here only where it was quick before.
        if is_short and self._render_s < _QUICK_S:
            return encode()
        return await asyncio.to_thread(encode)

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        arrival_s: float | None = None,
        cache_salt: str = "",
        trace: RequestTrace | None = None,
        urgency: Urgency = NOT_URGENT,
        tenant: str = "",
    ) -> AsyncIterator[RequestDelta]:
        """Run a request and yield its deltas. Closing the iterator aborts the request.

        Args:
            cache_salt: only requests with the same one share computed blocks.
            trace: is filled in as the request gets on.
            urgency: for the scheduling policy.
            tenant: who asks: each gets the same share of the steps.

        Raises:
            InvalidRequestError: it cannot be served as written; before any delta.
            OverloadedError: it would wait for too long; before any delta.
            QueueTimeoutError: it has waited for too long.
            EngineStoppedError: the engine is shutting down, or its loop has died.
            BackendError: a step of the request failed.
        """
        if not self._accepting:
            raise EngineStoppedError("the engine takes no more requests")
        request = self._engine.make_request(
            prompt_token_ids,
            params,
            request_id=request_id,
            arrival_s=arrival_s,
            cache_salt=cache_salt,
            urgency=urgency,
            tenant=tenant,
        )
        if request.request_id in self._streams:
            raise InvalidRequestError(
                f"request id {request.request_id!r} is in use", param="request_id"
            )
        trace = RequestTrace() if trace is None else trace
        self._queue(request, trace)
        stream = self._streams[request.request_id] = DeltaStream()
        expiry = asyncio.get_running_loop().call_later(
            self._admission.timeout_s, self._expire, request, trace, stream
        )
        finished = False
        try:
            while not finished:
                delta = await stream.get()
                finished = delta.finished
                if trace.first_sampled is not None and trace.first_sampled.ended_s is not None:
                    self._admission.first_token(request.request_id, trace.first_sampled.ended_s)
                if delta.error is not None:
                    raise delta.error
                yield delta
        finally:
            expiry.cancel()
            del self._streams[request.request_id]
            with self._lock:
                self._admission.forget(request.request_id)
                if not finished:
                    self._engine.abort(request.request_id)
            if self._drained is not None and not self._streams:
                self._drained.set()

    async def between_steps(self, work: Callable[[Engine], _Result]) -> _Result:
        """Have the step loop do something with the engine, and return what it gave.

        Raises:
            EngineStoppedError: the engine takes no more work.
        """
        if not self._accepting:
            raise EngineStoppedError("the engine takes no more requests")
        done: concurrent.futures.Future[_Result] = concurrent.futures.Future()

        def do() -> None:
            if not done.set_running_or_notify_cancel():
                return  # whoever asked has left
            try:
                done.set_result(work(self._engine))
            except Exception as error:
                done.set_exception(error)

        self._errands.add(done)
        try:
            with self._lock:
                self._between.append(do)
                self._progress.work_came()
                self._lock.notify()
            return await asyncio.wrap_future(done)
        finally:
            self._errands.remove(done)

    # On the event loop.

    def _queue(self, request: Request, trace: RequestTrace) -> None:
        with self._lock:
            prompt = self._engine.prepare(request)
            trace.forecast_s = self._admission.admit(prompt)
            self._engine.add(prompt, trace)
            self._progress.work_came()
            self._lock.notify()

    def _expire(self, request: Request, trace: RequestTrace, stream: DeltaStream) -> None:
        """End a request that has waited for too long."""
        if not trace.chunks:
            with self._lock:
                stream.put(self._admission.timed_out(request))

    async def _watch(self) -> None:
        """Tell the log, once each time that the step loop gets stuck, where everything stands."""
        told = False
        while True:
            await asyncio.sleep(self._progress.patience_s / 10)
            stuck = self._progress.stuck
            if stuck and not told:
                waited_s = self._progress.patience_s
                logger.critical(
                    "no step for %g s though there is work\n%s", waited_s, thread_stacks()
                )
            told = stuck

    def _deliver(self, items: list[tuple[str, RequestDelta | ForewordError]]) -> None:
        for request_id, item in items:
            stream = self._streams.get(request_id)
            if stream is not None:  # its reader may have left
                stream.put(item)

    def _deliver_first(
        self, items: list[tuple[str, RequestDelta | ForewordError]], left: SimpleQueue[None]
    ) -> None:
        self._deliver(items)
        # Their readers write in the event loop's next turn, before this.
        asyncio.get_running_loop().call_soon(left.put, None)

    def _die(self, error: ForewordError) -> None:
        self._accepting = False  # the thread may live a moment longer
        self._end_all(error)
        self._drop_errands(error)

    def _end_all(self, error: ForewordError) -> None:
        self._deliver([(request_id, error) for request_id in self._streams])

    def _drop_errands(self, error: ForewordError) -> None:
        """Tell those who wait for a step loop that does nothing more."""
        for errand in self._errands:
            if not errand.done() and errand.set_running_or_notify_cancel():
                errand.set_exception(error)

    # In the step loop's thread.

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._step()
        except Exception as error:
            logger.exception("the step loop died")
            self._post(self._die, BackendError(f"the engine failed: {error!r}"))

    def _wait_for_work(self) -> bool:
        with self._lock:
            while not (self._stopping or self._between or self._engine.has_work):
                self._progress.nothing_to_do()
                self._engine.learn()
                self._lock.wait()
            return not self._stopping

    def _step(self) -> None:
        with self._lock:
            while self._between:
                self._between.popleft()()
            step = self._engine.plan()
        if step is None:
            self._engine.rest()
            return
        self._progress.made()
        self._engine.execute(step)
        with self._lock:
            deltas = self._engine.apply(step)
        self._progress.made()
        if deltas:
            self._publish(deltas, step)
        if self.on_step is not None:
            self.on_step(step.record)

    def _publish(self, deltas: list[RequestDelta], step: Step) -> None:
        """Hand deltas to the event loop, first tokens first, and give these time to leave.

        The next step would take all cores at once, and who writes them would wait for a turn.
        """
        prompts = {chunk.request_id for chunk in step.plan.notes.chunks}
        items = [(delta.request_id, delta) for delta in deltas]
        first_words = [item for item in items if item[0] in prompts]
        left: SimpleQueue[None] = SimpleQueue()  # an Event would take longer to begin to wait
        if first_words:
            self._post(self._deliver_first, first_words, left)
            items = [item for item in items if item[0] not in prompts]
        if items:
            self._post(self._deliver, items)
        if first_words:
            with contextlib.suppress(Empty):
                left.get(timeout=_FIRST_WORDS_S)

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the event loop has closed: nobody is listening
            self._loop.call_soon_threadsafe(function, *arguments)
