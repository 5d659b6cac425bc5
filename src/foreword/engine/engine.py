"""The engine: scheduler, backend and text put together, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreword.config.engine import EngineConfig
from foreword.core.params import SamplingParams
from foreword.core.ports import Backend
from foreword.core.request import FinishReason, Request
from foreword.core.step import SequenceStep, StepPlan, StepResult
from foreword.core.trace import RequestTrace, StepLog, StepRecord
from foreword.engine.cache_control import CacheControl
from foreword.engine.intake import Intake
from foreword.engine.outputs import CompletionDelta, RequestDelta
from foreword.engine.preemption_log import PreemptionLog
from foreword.engine.running import RunningRequest
from foreword.errors import BackendError, InvalidRequestError
from foreword.kv import KVCache
from foreword.sched import CostModel, Forecast, Scheduler, SchedulerStats, SequenceUpdate, StepLoad
from foreword.sched import Sequence as PromptSequence
from foreword.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from foreword.tiers.loader import TierLoader
    from foreword.tiers.store import Tier

_LOAD_NAP_S = 0.001  # at most, before it is looked again who has come
_WARM_UP_TOKENS = 16  # one block: enough to reach every weight and every kernel


@dataclass(slots=True)
class Step:
    """A step of the engine between `Engine.plan` and `Engine.apply`.

    Attributes:
        outcome: what the backend gave, or how it failed; None before `Engine.execute`.
    """

    plan: StepPlan
    load: StepLoad
    record: StepRecord
    outcome: StepResult | BackendError | None = None


class Engine:
    """Runs requests; not thread-safe, blocks only inside `step`, or `execute` and `rest`.

    `LLM` drives it in the caller's thread, by `step`. `AsyncEngine` calls the parts of a step in a
    thread of its own, and everything else under a lock that is free while a step is computed.

    Args:
        backend: what runs the model; its pool is allocated here.
        cache_root: digest of all that KV blocks depend on beside their tokens.
        context_cost: see `foreword.models.spec.ModelSpec.context_cost`.
        tiers: where blocks are kept beside the pool, the fastest first.
        clock: monotonic seconds.

    Attributes:
        make_request: see `Intake.make_request`. Safe to call from any thread.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        config: EngineConfig,
        *,
        model_name: str,
        cache_root: bytes = b"",
        context_cost: float = 0.0,
        tiers: Sequence[Tier] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        backend.allocate(config.cache.num_blocks)
        self.backend = backend
        self.tokenizer = tokenizer
        self.config = config
        self.model_name = model_name
        self.tier_names = tuple(tier.name for tier in tiers)
        self.clock = clock
        cache = KVCache(config.cache, cache_root, context_cost)
        self._cost = CostModel()
        self.scheduler = Scheduler(config.scheduler, cache, self._cost)
        self._preemptions = PreemptionLog()
        self._loader: TierLoader | None = None
        if tiers:
            from foreword.tiers.loader import TierLoader
            from foreword.tiers.store import BlockStore

            store = BlockStore(tiers, backend.block_bytes, clock)
            self._loader = TierLoader(cache, backend, store, self._cost.prompt_s, clock)
        self.cache = CacheControl(cache, self._loader.store if self._loader else None)
        self.steps = StepLog()
        self._running: dict[str, RunningRequest] = {}
        self._to_learn_from: Step | None = None
        self.make_request = Intake(
            tokenizer.eos_token_ids,
            backend.vocab_size,
            self.max_model_len,
            self.scheduler.max_sequence_tokens,
            config.seed,
            clock,
        ).make_request

    @property
    def max_model_len(self) -> int:
        """Tokens that one sequence may have, prompt and output together."""
        return self.config.scheduler.max_model_len

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        loader = self._loader
        return self.scheduler.has_work or (loader is not None and loader.has_work)

    def warm_up(self) -> None:
        """Run steps that nobody asked for, so that the first request finds everything in memory.

        Weights are read from the file, and buffers are made, on first use. Two more short steps
        tell the cost model how fast this machine is. To be called before the first request: it
        writes to blocks that the scheduler believes to be free.
        """
        for index, num_tokens in enumerate((_WARM_UP_TOKENS, 1, _WARM_UP_TOKENS)):
            step = SequenceStep(
                seq_id=-1,
                token_ids=[0] * num_tokens,
                start=0,
                block_table=[0],
                draws=(0,),
                params=SamplingParams(temperature=0.0),
            )
            plan = StepPlan((step,))
            began_s = self.clock()
            self.backend.execute(plan)
            if index > 0:
                self._cost.observe(StepLoad.of(plan), self.clock() - began_s)

    def prepare(self, request: Request) -> PromptSequence:
        """Make what `forecast` and then `add` take of a request."""
        return self.scheduler.prepare(request)

    def add(self, prompt: PromptSequence, trace: RequestTrace | None = None) -> None:
        """Queue what `prepare` made of a request.

        Args:
            trace: is filled in as the request gets on, until its last delta.

        Raises:
            InvalidRequestError: a request of this id is running, or ``n`` is too large.
            ContextLengthError: it could not fit the KV pool even alone.
        """
        now, request = self.clock(), prompt.tracked.request
        self.check(request)
        loads = self._loader is not None and self._loader.begin(request, prompt.table)
        if not loads:
            self.scheduler.add(prompt, now)
        trace = RequestTrace() if trace is None else trace
        trace.request_id = request.request_id
        trace.step_before = self.steps.latest
        trace.queued_s = now
        trace.loads = loads
        self._running[request.request_id] = RunningRequest(prompt, trace, self.tokenizer)

    def check(self, request: Request) -> None:
        """Raise what `add` would raise."""
        self.scheduler.check(request)
        if request.request_id in self._running:  # being loaded, perhaps: no sequence yet
            raise InvalidRequestError(
                f"request {request.request_id!r} is still being served", param="request_id"
            )

    def forecast(self, prompt: PromptSequence) -> Forecast:
        """What to expect of a request if it were added now.

        Its blocks come from tiers while the running step goes on, where they are known to be there.
        """
        now, step = self.clock(), self.steps.latest
        running = step is not None and step.ended_s is None
        step_left_s = step.began_s + step.predicted_s - now if step and running else 0.0
        num_loaded, load_s = 0, 0.0
        if self._loader is not None:
            num_loaded, load_s = self._loader.expect(prompt.tracked.request, prompt.table)
        return self.scheduler.forecast(prompt, now, max(step_left_s, load_s), num_loaded)

    @property
    def num_queued(self) -> int:
        """Requests that wait for their first step, or for blocks from tiers."""
        num_loading = self._loader.num_loads if self._loader is not None else 0
        return self.scheduler.num_waiting + num_loading

    def abort(self, request_id: str) -> None:
        """Drop a request and free its blocks; unknown ids are ignored."""
        if self._running.pop(request_id, None) is None:
            return
        if self._loader is None or not self._loader.abort(request_id):
            self.scheduler.abort(request_id)

    def close(self) -> None:
        """Have everything written that tiers keep. The engine is not to be used any more."""
        if self._loader is not None:
            self._loader.close()

    def stats(self) -> SchedulerStats:
        """Sequences and blocks now, and counters since the start."""
        return self.scheduler.stats

    def step(self) -> list[RequestDelta]:
        """Run one step and return what it brought, at most one delta for each request.

        A step that is interrupted (Ctrl-C) drops its requests, and the engine can be used further.
        """
        step = self.plan()
        if step is None:
            self.rest()
            return []
        try:
            self.execute(step)
        except BaseException:
            self.drop(step)
            raise
        return self.apply(step)

    def plan(self) -> Step | None:
        """Choose what is computed next; None where nothing can be.

        `execute` and then `apply`, or `drop`, are to follow. `add` and `abort` may come before,
        between and after them.
        """
        self.learn()
        if self._loader is not None and not self.scheduler.tries_again:
            self._tend(self._loader)
        planned_s = self.clock()
        plan = self.scheduler.plan(planned_s)
        if plan is None:
            return None
        load = self.scheduler.planned_load
        record = self.steps.begin(planned_s, self.clock(), plan.notes, self._cost.predict(load))
        record.load = load.features
        for chunk in plan.notes.chunks:
            self._running[chunk.request_id].trace.chunks.append((record, chunk))
        for request_id in plan.notes.preempted:
            self._running[request_id].trace.preemptions += 1
        if plan.notes.preempted:
            self._preemptions.note(self.scheduler.stats, planned_s)
        return Step(plan, load, record)

    def learn(self) -> None:
        """Tell the cost model of the latest step. `plan` does; it is better done while idle."""
        step, self._to_learn_from = self._to_learn_from, None
        if step is not None and step.record.ended_s is not None:
            self._cost.observe(step.load, step.record.ended_s - step.record.began_s)

    def execute(self, step: Step) -> None:
        """Compute a step. Touches nothing but the backend and the step itself.

        So this, which takes nearly all of the time, may run in a thread while another one calls
        `add` and `abort`.
        """
        step.record.began_s = self.clock()
        try:
            step.outcome = self.backend.execute(step.plan)
        except BackendError as error:
            step.outcome = error
        finally:
            step.record.ended_s = self.clock()

    def apply(self, step: Step) -> list[RequestDelta]:
        """Take in what a step computed, and return at most one delta for each request.

        If it failed inside the backend, or came back with what nobody asked for, its parts are
        tried again; a request that fails alone ends with that error.
        """
        outcome, record = step.outcome, step.record
        assert outcome is not None
        assert record.ended_s is not None
        try:
            if isinstance(outcome, BackendError):
                raise outcome
            updates = self.scheduler.apply(outcome, record.ended_s)
        except BackendError as error:
            ended = [self._running[request_id] for request_id in self.scheduler.fail()]
            deltas = [self._sent(running.fail(error, record)) for running in ended]
        else:
            self._to_learn_from = step
            record.sampling_s = outcome.sampling_s
            deltas = self._publish(updates, record)
        record.applied_s = self.clock()
        return deltas

    def drop(self, step: Step) -> None:
        """Give up a step and its requests, without a word to them."""
        for request_id in self.scheduler.drop():
            del self._running[request_id]
        step.record.applied_s = self.clock()

    def rest(self) -> None:
        """Sleep a moment where requests wait for nothing but blocks from tiers."""
        if self._loader is not None and self._loader.has_work:
            self._loader.wait(_LOAD_NAP_S)

    def _tend(self, loader: TierLoader) -> None:
        """Copy new blocks out, and queue the requests whose blocks have come in."""
        loader.save()
        for load in loader.finished():
            running = self._running[load.request.request_id]
            trace = running.trace
            trace.num_loaded_tokens = dict(load.num_tokens)
            trace.load_wait_s = load.seconds
            trace.loaded = self.clock(), self.steps.latest
            self.scheduler.add(running.prompt, self.clock(), loaded=load.num_tokens)

    def _publish(self, updates: list[SequenceUpdate], record: StepRecord) -> list[RequestDelta]:
        news: dict[RunningRequest, list[CompletionDelta]] = {}
        for update in updates:
            running = self._running[update.request_id]
            if running.trace.first_sampled is None:
                running.trace.recompute_s = self._cost.prompt_s(update.num_cached_tokens, start=0)
            delta = running.take_in(update, record)
            if delta is None:
                continue
            news.setdefault(running, []).append(delta)
            if delta.finish_reason is not None and update.finish_reason is None:
                self.scheduler.abort(update.request_id, update.index, FinishReason.STOP)
        return [self._sent(running.delta(completions)) for running, completions in news.items()]

    def _sent(self, delta: RequestDelta) -> RequestDelta:
        """Forget the request if that is its last delta."""
        if delta.finished:
            del self._running[delta.request_id]
        return delta
