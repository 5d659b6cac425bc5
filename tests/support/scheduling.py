"""A scheduler on a null backend with all its invariants checked, and the model it is judged by."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foreword.backends.null import NullBackend, hashed_token
from foreword.config.cache import CacheConfig
from foreword.config.scheduler import SchedulerConfig
from foreword.core.params import SamplingParams
from foreword.core.request import FinishReason, Request
from foreword.core.step import SequenceStep, StepPlan
from foreword.errors import BackendError
from foreword.kv import BlockTable, KVCache, root_digest
from foreword.sched import CostModel, Scheduler, SequenceUpdate, StepLoad
from foreword.sched.sequence import NO_TIERS, Sequence

VOCAB = 32  # few tokens, so that stop tokens come up
BLOCK = 16


@dataclass
class Completion:
    """All that was reported of one completion."""

    token_ids: list[int] = field(default_factory=list)
    reason: FinishReason | None = None


def alone(request: Request, draw: int) -> Completion:
    """The gold model: one completion, token by token, with nothing else in the world."""
    next_token = hashed_token(VOCAB)
    completion = Completion()
    stops = set(request.eos_token_ids) | set(request.params.stop_token_ids)
    while completion.reason is None:
        if len(completion.token_ids) == request.max_tokens:
            completion.reason = FinishReason.LENGTH
            break
        banned = sorted(stops) if len(completion.token_ids) < request.params.min_tokens else []
        step = SequenceStep(
            0, (), 0, (), params=request.params, seed=request.seed, banned_token_ids=banned
        )
        history = [*request.prompt_token_ids, *completion.token_ids]
        token_id = next_token(history, step, draw)
        completion.token_ids.append(token_id)
        if token_id in stops:
            completion.reason = FinishReason.STOP
    return completion


def scores_alone(request: Request) -> tuple[float, ...]:
    """The prompt's log-probabilities, computed in one piece on a fresh backend."""
    prompt = request.prompt_token_ids
    backend = NullBackend(vocab_size=VOCAB)
    backend.allocate(num_blocks := -(-len(prompt) // BLOCK))
    step = SequenceStep(
        0, prompt, 0, range(num_blocks), params=request.params, score_token_ids=prompt[1:]
    )
    (result,) = backend.execute(StepPlan((step,))).sequences
    return tuple(score.logprob for score in result.prompt_logprobs)


BUDGET = 256
COST_S = (2e-3, 4e-4, 1e-7, 6e-4, 1e-6)
VIRTUAL: dict[str, Any] = {
    "budget": BUDGET,
    "max_seqs": 64,
    "num_blocks": 2000,
    "caching": False,
    "coefficients_s": COST_S,
}
"""Of a `World` in virtual time with room for everybody."""


def make_short_sighted(scheduler: Scheduler) -> None:
    """Have it admit as if streams were about to end, so that blocks run out."""
    scheduler._growth.observe(0, 10**9, 0)


class World:
    """A scheduler on a null backend, with every invariant checked around every step.

    A step takes a second; or, where there are ``coefficients_s``, what the cost model makes of it.
    The short-sighted expect every stream to end at once, and so have to preempt.
    """

    def __init__(
        self,
        *,
        budget: int = 32,
        max_seqs: int = 4,
        num_blocks: int = 24,
        caching: bool = True,
        policy: str = "fcfs",
        tpot_slo_ms: float | None = None,
        coefficients_s: tuple[float, float, float, float, float] | None = None,
        short_sighted: bool = False,
    ) -> None:
        self.caching = caching
        self.fail_next = False
        self.poison: set[str] = set()  # requests that make a step fail, once they have an answer
        self.config = SchedulerConfig(
            max_num_batched_tokens=budget,
            max_num_seqs=max_seqs,
            max_model_len=10_000,
            scheduling_policy=policy,
            tpot_slo_ms=tpot_slo_ms,
        )
        self.cache = KVCache(
            CacheConfig(num_blocks=num_blocks, enable_prefix_caching=caching),
            root_digest({"model": b"test"}),
        )
        self.virtual = coefficients_s is not None
        self.cost = CostModel(coefficients_s) if coefficients_s else CostModel()
        self.scheduler = Scheduler(self.config, self.cache, self.cost)
        if short_sighted:
            make_short_sighted(self.scheduler)
        self.backend = NullBackend(vocab_size=VOCAB, on_step=self._on_step)
        self.backend.allocate(num_blocks)
        self.now = 0.0
        self.plans: list[StepPlan] = []
        self.durations_s: list[float] = []  # of the steps of `serve`
        self.shares: list[dict[str, int]] = []  # for each plan, the tokens of each request
        self.requests: dict[str, Request] = {}
        self.completions: dict[tuple[str, int], Completion] = {}
        self.prompt_logprobs: dict[str, tuple[float, ...]] = {}
        self.updates: list[SequenceUpdate] = []
        self.queued_s: dict[str, float] = {}
        self.first_s: dict[str, float] = {}  # when each request had its first token

    def add(
        self,
        request: Request,
        queued_s: float | None = None,
        loaded: Mapping[str, int] = NO_TIERS,
    ) -> None:
        queued_s = self.now if queued_s is None else queued_s
        self.scheduler.add(self.scheduler.prepare(request), queued_s, loaded=loaded)
        self.queued_s[request.request_id] = queued_s
        self.requests[request.request_id] = request
        for draw in range(request.params.n):
            self.completions[request.request_id, draw] = Completion()

    def abort(self, request_id: str, index: int | None = None) -> None:
        for update in self.scheduler.abort(request_id, index):
            self._take(update)

    def step(
        self,
        abort_during: tuple[str, int | None] | None = None,
        during: Callable[[], object] = lambda: None,
    ) -> bool:
        """One step; False if there was nothing to do.

        Args:
            during: called while the step runs, in virtual time at its end.
        """
        self.now += not self.virtual
        tries_again = self.scheduler.tries_again
        plan = self.scheduler.plan(self.now)
        self._check_blocks()
        if plan is None:
            assert not self.scheduler.has_work
            return False
        self._check_plan(plan)
        if not tries_again:
            self._check_choice(plan)
        if self.virtual:
            self.now += self.cost.predict(StepLoad.of(plan))
        during()
        self.plans.append(_kept(plan))
        self.shares.append(self._share(plan))
        if abort_during is not None:
            self.abort(*abort_during)
        try:
            result = self.backend.execute(plan)
        except BackendError:
            for request_id in self.scheduler.fail():
                for (key, _), completion in self.completions.items():
                    if key == request_id and completion.reason is None:
                        completion.reason = FinishReason.ERROR
        else:
            for update in self.scheduler.apply(result, self.now):
                self._take(update)
        self._check_blocks()
        return True

    def serve(self, arrivals: Iterable[tuple[float, Request]]) -> None:
        """Add requests when they come, also during steps, and step until all have ended."""
        coming = deque(sorted(arrivals, key=lambda arrival: arrival[0]))

        def take() -> None:
            while coming and coming[0][0] <= self.now:
                queued_s, request = coming.popleft()
                self.add(request, queued_s)

        while coming or self.scheduler.has_work:
            if not self.scheduler.has_work:
                self.now = max(self.now, coming[0][0])
            take()
            began_s = self.now
            self.step(during=take)
            self.durations_s.append(self.now - began_s)

    @property
    def ttfts_s(self) -> dict[str, float]:
        """Of each request that has a token."""
        return {name: at_s - self.queued_s[name] for name, at_s in self.first_s.items()}

    def num_computed(self, request_id: str) -> int:
        """How many tokens have been planned for a request so far."""
        return sum(step.get(request_id, 0) for step in self.shares)

    def run(self) -> None:
        """Step to the end, within the number of steps that starvation would exceed."""
        # Each step computes a token, and each token is computed again a few times at most.
        bound = len(self.plans) + 4 * sum(
            (len(r.prompt_token_ids) + r.max_tokens) * r.params.n for r in self.requests.values()
        )
        while self.step():
            assert len(self.plans) <= bound, "starvation"
        usage = self.cache.usage
        assert usage.referenced == 0
        assert usage.cached == 0 or self.caching

    def _on_step(self, plan: StepPlan) -> None:
        streams = {
            seq.seq_id
            for seq in self.scheduler._running
            if seq.tracked.request.request_id in self.poison and seq.is_stream
        }
        if self.fail_next or any(step.seq_id in streams for step in plan.sequences):
            self.fail_next = False
            raise BackendError("injected")

    def _take(self, update: SequenceUpdate) -> None:
        self.updates.append(update)
        if update.token_ids:
            self.first_s.setdefault(update.request_id, self.now)
        completion = self.completions[update.request_id, update.index]
        assert completion.reason is None, "an update after the last one"
        completion.token_ids += update.token_ids
        completion.reason = update.finish_reason
        if update.prompt_logprobs:
            assert update.request_id not in self.prompt_logprobs
            scores = tuple(score.logprob for score in update.prompt_logprobs)
            self.prompt_logprobs[update.request_id] = scores
        assert update.num_cached_tokens < len(self.requests[update.request_id].prompt_token_ids)

    def _share(self, plan: StepPlan) -> dict[str, int]:
        names = {s.seq_id: s.tracked.request.request_id for s in self.scheduler._running}
        share: dict[str, int] = {}
        for step in plan.sequences:
            name = names[step.seq_id]
            share[name] = share.get(name, 0) + len(step.token_ids)
        return share

    def _check_blocks(self) -> None:
        usage = self.cache.usage
        assert usage.free + usage.cached + usage.referenced == usage.total
        tables = Counter(block for table in self._tables() for block in table.blocks)
        assert usage.referenced == len(tables)
        for block in range(usage.total):
            assert self.cache.pool.references(block) == tables[block]
        for seq in self.scheduler._waiting:
            assert not seq.table.blocks
        if self.cache.prefixes is not None:
            assert len(self.cache.prefixes) <= usage.total

    def _tables(self) -> Iterable[BlockTable]:
        """Whoever may hold blocks."""
        return (seq.table for seq in self.scheduler._running)

    def _check_plan(self, plan: StepPlan) -> None:
        assert 0 < plan.num_tokens <= self.config.max_num_batched_tokens
        running = self.scheduler._running
        assert sum(len(seq.draws) for seq in running) <= self.config.max_num_seqs
        for part in (running.streams, running.part_way):
            assert part == sorted(part, key=lambda seq: seq.rank)
        assert all(seq.num_missing == 1 for seq in running.streams)
        assert all(seq.num_missing > 1 for seq in running.part_way)
        planned = {step.seq_id for step in plan.sequences}
        assert len(planned) == len(plan.sequences)
        self._check_writes(plan)

    def _check_choice(self, plan: StepPlan) -> None:
        planned = {step.seq_id for step in plan.sequences}
        # Every stream decodes in every step.
        assert all(seq.seq_id in planned for seq in self.scheduler._running.streams)
        self._check_admission(plan)

    def _check_writes(self, plan: StepPlan) -> None:
        """Nobody writes to a block that another sequence of the plan can see."""
        for step in plan.sequences:
            first = step.start // BLOCK
            last = (step.start + len(step.token_ids) - 1) // BLOCK
            assert len(step.block_table) == last + 1
            for block in step.block_table[first:]:
                assert self.cache.pool.references(block) == 1

    def _check_admission(self, plan: StepPlan) -> None:
        """With budget, a slot and blocks left, the first waiter would have been taken.

        Where steps need not be filled it may be left out for another prompt, not for none.
        """
        scheduler = self.scheduler
        full = plan.num_tokens == self.config.max_num_batched_tokens
        if full or not scheduler._waiting:
            return
        fills = self.config.scheduling_policy == "fcfs" and self.config.tpot_slo_ms is None
        if not fills and plan.notes.chunks:
            return
        # Whose turn it was is not known any more.
        queues = scheduler._waiting._queues.values()
        heads = [next(iter(queue)) for queue in queues]
        if self.caching and any(self._computes_prefix_of(head, plan) for head in heads):
            return
        if not fills:  # an aged one is not overtaken
            heads += [queue.longest_waiting for queue in queues]
        limit = min(self.config.max_num_seqs, self.config.max_num_batched_tokens)
        running = sum(len(seq.draws) for seq in scheduler._running)
        blocked = []
        for seq in heads:
            slots = running + len(seq.draws)
            fits = scheduler._planner._room.fits(seq, seq.table.match(seq.max_cached_tokens), [])
            blocked.append(slots > limit or not fits)
        assert any(blocked)

    def _computes_prefix_of(self, seq: Sequence, plan: StepPlan) -> bool:
        """Whether a step computes at least a block that ``seq`` could take from the cache then."""
        running = {other.seq_id: other for other in self.scheduler._running}
        for step in plan.sequences:
            stop = step.start + len(step.token_ids)
            known = list(running[step.seq_id].token_ids[:stop])
            wanted = seq.token_ids[: seq.max_cached_tokens]
            shared = next(
                (i for i, (a, b) in enumerate(zip(known, wanted)) if a != b),  # noqa: B905
                min(len(known), len(wanted)),
            )
            if shared // BLOCK > step.start // BLOCK:
                return True
        return False


def _kept(plan: StepPlan) -> StepPlan:
    """The plan as it is now: its steps are used again."""
    return replace(plan, sequences=tuple(replace(step) for step in plan.sequences))


def make_request(name: str, prompt: list[int], **params: object) -> Request:
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    return Request(
        name,
        tuple(prompt),
        sampling,
        max_tokens=sampling.max_tokens or 0,
        eos_token_ids=frozenset() if sampling.ignore_eos else frozenset({0}),
        seed=sampling.seed or 0,
    )


def prompt(length: int, first: int = 1) -> list[int]:
    """A prompt that shares no prefix with one of another ``first``."""
    return [first, *(2 + position % 7 for position in range(length))][:length]


def check_outputs(world: World) -> None:
    """Everything that was reported is what the gold model says, as far as it goes."""
    for (request_id, draw), completion in world.completions.items():
        request = world.requests[request_id]
        gold = alone(request, draw)
        if completion.reason in (FinishReason.ABORT, FinishReason.ERROR):
            assert completion.token_ids == gold.token_ids[: len(completion.token_ids)]
        else:
            assert completion == gold
    for request_id, scores in world.prompt_logprobs.items():
        assert scores == scores_alone(world.requests[request_id])
