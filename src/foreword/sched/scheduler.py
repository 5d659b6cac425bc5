"""The scheduler: which tokens are computed next, and what follows from the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

from foreword.config.scheduler import SchedulerConfig
from foreword.core.request import FinishReason, Request
from foreword.core.step import SequenceResult, SequenceStep, StepPlan, StepResult
from foreword.errors import BackendError, ContextLengthError, InvalidRequestError
from foreword.kv import KVCache
from foreword.sched.batch import Batch
from foreword.sched.beginnings import Beginnings
from foreword.sched.cost import CostModel, StepLoad
from foreword.sched.fair import FairQueue
from foreword.sched.forecast import Forecast, Forecaster
from foreword.sched.growth import Growth
from foreword.sched.outputs import Counters, SchedulerStats, SequenceUpdate
from foreword.sched.packing import Packing
from foreword.sched.planner import Planner
from foreword.sched.policy import POLICIES
from foreword.sched.room import Room
from foreword.sched.running import RunningSet
from foreword.sched.sequence import NO_TIERS, Sequence, TrackedRequest
from foreword.sched.suspects import Suspects


class Scheduler:
    """Continuous batching with chunked prompts over a pool of KV blocks.

    A sequence has known and computed tokens, and a step lets computed catch up. Every running
    sequence that misses one token gets it; what is left of the step's token budget goes to longer
    stretches (prompts, and sequences that resume) in the order of a policy and within the bounds of
    `Packing`. So any number of prompts may be part-way, and a shorter one passes a longer one. A
    prompt with ``n > 1`` is computed once and then forks.

    A sequence gets the blocks of its known tokens when it is admitted, and one more whenever it
    outgrows them. When none is left, one gives its blocks up and waits to be computed again, see
    `Room`.

    Pure: a function of its calls, without clock, I/O or threads. `plan` and `apply` (or `fail`)
    alternate; `add` and `abort` may come at any time between other calls.

    Args:
        config: limits of a step and of a sequence.
        cache: the blocks; the scheduler is their only user.
        cost: predicts how long steps take; whoever runs them keeps it informed.
    """

    def __init__(
        self, config: SchedulerConfig, cache: KVCache, cost: CostModel | None = None
    ) -> None:
        self._config = config
        self._cache = cache
        policy = POLICIES[config.scheduling_policy]()
        cost = cost or CostModel()
        packing = Packing(policy, cost, config.max_num_batched_tokens, config.tpot_slo_ms)
        # each running sequence may need a token in the same step
        self._max_running = min(config.max_num_seqs, config.max_num_batched_tokens)
        self._requests: dict[str, TrackedRequest] = {}
        self._running = RunningSet()
        self._growth = Growth()
        self._waiting = FairQueue(policy, cache)
        self._beginnings = Beginnings(policy, cache, self._waiting)
        self._forecaster = Forecaster(
            policy,
            packing,
            cost,
            cache,
            self._running,
            self._waiting,
            self._beginnings,
            self._growth,
            self._max_running,
        )
        self._totals = Counters()
        self._planner = Planner(
            cache,
            self._running,
            self._waiting,
            Room(cache, self._running, self._growth),
            packing,
            max_tokens=config.max_num_batched_tokens,
            max_running=self._max_running,
            totals=self._totals,
        )
        self._in_flight: Batch | None = None
        self._suspects = Suspects()
        self._orders = count()
        self._seq_ids = count()

    @property
    def has_work(self) -> bool:
        """Whether a sequence is running or waiting."""
        return bool(self._running or self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold none: new ones, and those that were preempted."""
        return len(self._waiting)

    @property
    def num_uncached_tokens(self) -> int:
        """Tokens that all prompts together have still to compute, as far as can be told."""
        part_way = sum(seq.num_uncached for seq in self._running.part_way)
        return part_way + self._waiting.num_tokens

    @property
    def num_waiting_tokens(self) -> int:
        """Those of them that are of sequences without blocks."""
        return self._waiting.num_tokens

    @property
    def max_sequence_tokens(self) -> int:
        """The most tokens, prompt and output, that a sequence can have here."""
        pool_tokens = self._cache.pool.num_blocks * self._cache.block_size
        return min(self._config.max_model_len, pool_tokens)

    @property
    def stats(self) -> SchedulerStats:
        """A snapshot of the state and the counters."""
        return SchedulerStats(
            self.num_running,
            self.num_waiting,
            self.num_waiting_tokens,
            self._cache.usage,
            self._totals.copy(),
        )

    @property
    def tries_again(self) -> bool:
        """Whether the next step is a part of one that failed; it relies on blocks as they are."""
        return bool(self._suspects)

    @property
    def planned_load(self) -> StepLoad:
        """The work in the step that has been planned and neither been applied nor failed."""
        return self._require_in_flight().load

    def prepare(self, request: Request) -> Sequence:
        """Make what `forecast` and then `add` take of a request. It is in no line yet."""
        return Sequence.first(TrackedRequest(request), self._cache)

    def add(self, seq: Sequence, now: float, *, loaded: Mapping[str, int] = NO_TIERS) -> None:
        """Queue what `prepare` made of a request, at once or later.

        Args:
            loaded: prompt tokens that have been put into the prefix cache for it, by tier; for
                the counters only.

        Raises:
            ContextLengthError: it could not end even with the whole pool to itself.
            InvalidRequestError: no prompt, more completions than may run at once, or the id of
                a request that has not ended.
        """
        tracked = seq.tracked
        self.check(tracked.request)
        tracked.order, tracked.queued_s, tracked.loaded = next(self._orders), now, loaded
        tracked.sequences.append(seq)
        seq.seq_id = next(self._seq_ids)
        self._expect(seq)
        self._beginnings.add(seq)
        self._requests[tracked.request.request_id] = tracked
        self._waiting.add(seq)

    def forecast(
        self, seq: Sequence, now: float, step_left_s: float = 0.0, num_loaded: int = 0
    ) -> Forecast:
        """What to expect of a request if it were added now.

        Args:
            seq: what `prepare` made of it.
            step_left_s: until the step is over that has been planned, if one has, and the
                request can be added.
            num_loaded: leading tokens that will be in the prefix cache by then.
        """
        seq.tracked.queued_s = now
        self._expect(seq)
        seq.num_expected = max(seq.num_expected, num_loaded)
        return self._forecaster.forecast(seq, now, self._in_flight, step_left_s)

    def _expect(self, seq: Sequence) -> None:
        hit = seq.table.match(seq.max_cached_tokens)
        seq.num_expected = hit.num_tokens(self._cache.block_size)

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        reason: FinishReason = FinishReason.ABORT,
    ) -> list[SequenceUpdate]:
        """End one completion of a request, or all, and free their blocks at once.

        During a step (between `plan` and `apply`) this is safe too: blocks are handed out again
        by the next `plan` only.

        Args:
            request_id: the request; nothing happens where it is unknown or has ended.
            index: the completion; None for all of them.
            reason: what the updates give as their reason.

        Returns:
            The last update of each completion that ended by this call.
        """
        tracked = self._requests.get(request_id)
        updates: list[SequenceUpdate] = []
        for seq in list(tracked.sequences) if tracked else ():
            leaving = [draw for draw in seq.draws if index in (None, draw)]
            updates += self._end(seq, leaving, reason)
        self._running.sweep()
        return updates

    def plan(self, now: float) -> StepPlan | None:
        """Choose the tokens of the next step.

        Returns:
            The step, valid until `apply` or `fail`; None if there is nothing to compute.
        """
        if self._in_flight:
            raise RuntimeError("the previous step has neither been applied nor failed")
        self._cache.tick(now)
        self._waiting.follow_cache(self._running.part_way)
        batch = self._suspects.next() or self._planner.choose(now)
        if not batch.sequences:
            return None
        self._in_flight = batch
        return batch.plan()

    def apply(self, result: StepResult, now: float) -> list[SequenceUpdate]:
        """Take in what the planned step gave.

        Returns:
            One update for each completion that got a token or ended.

        Raises:
            BackendError: the result is not one of this plan; the step is still to be ended, by
                `fail`.
        """
        self._cache.tick(now)
        batch = self._require_in_flight()
        num_sampled = _check_result(batch.steps, result)
        self._in_flight = None
        self._totals.steps += 1
        self._totals.computed_tokens += batch.num_tokens
        self._totals.generated_tokens += num_sampled
        updates: list[SequenceUpdate] = []
        ends: list[FinishReason] = []
        for seq, step, outcome in zip(batch.sequences, batch.steps, result.sequences, strict=True):
            if seq.next_step is step:
                updates.append(update := seq.extend(step, outcome))
                if update.finish_reason is not None:
                    ends.append(update.finish_reason)
                    self._close(seq)
            elif not seq.ended:
                news = self._advance(seq, step, outcome)
                updates += news
                ends += [update.finish_reason for update in news if update.finish_reason]
        if ends:
            self._running.sweep()
        self._growth.observe(num_sampled, ends.count(FinishReason.STOP), len(ends))
        return updates

    def fail(self) -> list[str]:
        """Take in that the planned step failed.

        The next steps try its parts again, see `Suspects`.

        Returns:
            The ids of those requests that ended by this. All others go on.
        """
        batch = self._require_in_flight()
        self._in_flight = None
        return self._end_all(self._suspects.add(batch))

    def drop(self) -> list[str]:
        """End every request that has a sequence in the planned step, and return their ids."""
        batch = self._require_in_flight()
        self._in_flight = None
        return self._end_all(batch.request_ids)

    # --- results

    def _require_in_flight(self) -> Batch:
        if self._in_flight is None:
            raise RuntimeError("no step is planned")
        return self._in_flight

    def _advance(
        self, seq: Sequence, step: SequenceStep, outcome: SequenceResult
    ) -> list[SequenceUpdate]:
        self._totals.recomputed_tokens += seq.take_in(step, outcome)
        if seq.num_missing:
            self._running.advance(seq)
            return []
        if not step.draws:  # nothing to generate: the prompt was all that was asked for
            return self._end(seq, seq.draws, FinishReason.LENGTH)
        children = seq.split(self._seq_ids)
        updates = []
        for branch in (seq, *children):
            at = step.draws.index(branch.draws[0])
            branch.token_ids.append(outcome.token_ids[at])
            updates.append(self._drawn(branch, outcome, at))
        self._running.advance(seq)
        for child in children:
            self._running.add(child)
        return updates

    def _drawn(self, seq: Sequence, outcome: SequenceResult, at: int = 0) -> SequenceUpdate:
        """Report the newest token of a sequence, the result's token ``at``."""
        reason = seq.finish_reason
        if reason:
            self._close(seq)
        return seq.tracked.update(
            seq.draws[0],
            outcome.token_ids[at : at + 1],
            outcome.logprobs[at : at + 1],
            finish_reason=reason,
        )

    # --- endings

    def _end_all(self, request_ids: list[str]) -> list[str]:
        for request_id in request_ids:
            self.abort(request_id, reason=FinishReason.ERROR)
        return request_ids

    def _end(
        self, seq: Sequence, draws: Iterable[int], reason: FinishReason
    ) -> list[SequenceUpdate]:
        """End some of the completions that ``seq`` stands for, and with the last one itself."""
        leaving = tuple(draws)
        staying = tuple(draw for draw in seq.draws if draw not in leaving)
        if reason is FinishReason.STOP:  # by a stop string
            self._growth.observe(0, len(leaving), len(leaving))
        if staying:
            seq.draws = staying
        else:
            self._close(seq)
        return [seq.tracked.update(draw, finish_reason=reason) for draw in leaving]

    def _close(self, seq: Sequence) -> None:
        """Take a sequence out of everything but the running ones, which are swept later."""
        seq.ended = True
        seq.next_step = None
        seq.table.release()
        self._waiting.discard(seq)
        self._waiting.end(seq)
        self._beginnings.discard(seq)
        seq.tracked.sequences.remove(seq)
        if not seq.tracked.sequences:
            del self._requests[seq.tracked.request.request_id]

    def check(self, request: Request) -> None:
        """Raise what `add` would raise."""
        num_prompt_tokens, limit = len(request.prompt_token_ids), self.max_sequence_tokens
        if num_prompt_tokens + request.max_tokens > limit:
            raise ContextLengthError(
                f"{num_prompt_tokens} prompt tokens and {request.max_tokens} tokens to generate "
                f"do not fit: a sequence has at most {limit} tokens here",
                prompt_tokens=num_prompt_tokens,
                limit_tokens=limit,
                param="max_tokens" if num_prompt_tokens < limit else "prompt",
            )
        if num_prompt_tokens == 0:
            raise InvalidRequestError("the prompt has no tokens", param="prompt")
        if request.params.n > self._max_running:
            raise InvalidRequestError(
                f"n is {request.params.n}, but at most {self._max_running} sequences run at once",
                param="n",
            )
        if request.request_id in self._requests:
            raise InvalidRequestError(
                f"request {request.request_id!r} is still being served", param="request_id"
            )


def _check_result(steps: list[SequenceStep], result: StepResult) -> int:
    """Return how many tokens were sampled.

    Raises:
        BackendError: the result does not answer these steps, one by one.
    """
    if len(result.sequences) != len(steps):
        raise BackendError(
            f"the step's result does not answer its plan: it is of {len(result.sequences)} "
            f"sequences, not of {len(steps)}"
        )
    num_sampled = 0
    for step, outcome in zip(steps, result.sequences, strict=True):
        count = len(outcome.token_ids)
        if outcome.seq_id != step.seq_id or count != len(step.draws):
            raise BackendError(
                f"the step's result does not answer its plan: {count} tokens of sequence "
                f"{outcome.seq_id}, not {len(step.draws)} of {step.seq_id}"
            )
        num_sampled += count
    return num_sampled
