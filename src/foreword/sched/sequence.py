"""The scheduler's state of a request and of its sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import maxsize

from foreword.core.request import FinishReason, Request
from foreword.core.step import SequenceResult, SequenceStep, TokenLogprob
from foreword.kv import BlockTable, KVCache, Watch
from foreword.sched.cost import StepLoad
from foreword.sched.outputs import SequenceUpdate

NO_TIERS: Mapping[str, int] = {}
_MOST_PREEMPTIONS = 3  # of one sequence


class TrackedRequest:
    """What the sequences of one request share.

    Attributes:
        request: the request itself.
        num_prompt_tokens: length of its prompt.
        penalised: whether sampling looks at earlier tokens.
        stop_ids: tokens that end a completion.
        order: its place in the order of arrival; after all others until it is added.
        queued_s: when it was added, or is thought to be.
        admitted: whether it has been part of a step.
        loaded: prompt tokens put into the cache for it before it was added, by their tier.
        num_cached_tokens: prompt tokens found in the cache at its first admission.
        prompt_logprobs: collected so far, for prompt tokens 1, 2, …
        sequences: those that have not ended. One until the prompt is computed, then one for each
            completion.
    """

    __slots__ = (
        "_prompt_logprobs_sent",
        "admitted",
        "loaded",
        "num_cached_tokens",
        "num_prompt_tokens",
        "order",
        "penalised",
        "prompt_logprobs",
        "queued_s",
        "request",
        "sequences",
        "stop_ids",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.order = maxsize
        self.queued_s = 0.0
        self.admitted = False
        self.loaded = NO_TIERS
        self.num_cached_tokens = 0
        self.prompt_logprobs: list[TokenLogprob] = []
        self.sequences: list[Sequence] = []
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.penalised = request.params.penalised
        self.stop_ids = request.eos_token_ids.union(request.params.stop_token_ids)
        self._prompt_logprobs_sent = request.params.prompt_logprobs is None

    @property
    def num_unscored(self) -> int:
        """Prompt tokens whose log-probability is wanted and not known yet."""
        if self.request.params.prompt_logprobs is None:
            return 0
        return self.num_prompt_tokens - 1 - len(self.prompt_logprobs)

    def update(
        self,
        index: int,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob, ...] = (),
        *,
        finish_reason: FinishReason | None = None,
    ) -> SequenceUpdate:
        """News of completion ``index``; the prompt's log-probabilities go with the first."""
        prompt_logprobs: tuple[TokenLogprob, ...] = ()
        if not self._prompt_logprobs_sent and self.num_unscored == 0:
            prompt_logprobs = tuple(self.prompt_logprobs)
            self._prompt_logprobs_sent = True
        return SequenceUpdate(
            self.request.request_id,
            index,
            token_ids,
            logprobs,
            prompt_logprobs,
            finish_reason,
            self.num_cached_tokens,
        )


class Sequence:
    """Known tokens, how many of them are computed, and the blocks that hold those.

    Attributes:
        seq_id: unique among all sequences that were added to the scheduler; -1 before.
        tracked: the request that it belongs to.
        draws: completions that go on from here: all of them until the prompt is computed, one
            after that.
        token_ids: known tokens, prompt first.
        num_computed: leading tokens whose KV is in the blocks of ``table``.
        table: the blocks; empty while the sequence waits.
        num_expected: leading tokens that the cache held when that last mattered to its place in
            line.
        watch: tells when that changes; None while it does not wait, and without prefix caching.
        max_known: known tokens when it has generated all that it may.
        num_shared: leading tokens that a prompt ahead of it was to compute, see `Beginnings`.
        num_passed: tokens of prompts that have begun ahead of it while it lacked blocks.
        num_preemptions: how often it gave its blocks up.
        next_step: the step of a stream's next token; None where that has to be made first.
        next_update: what will be reported of that token; as long as there is a ``next_step``.
        ended: whether it has left the scheduler.
    """

    __slots__ = (
        "_num_computed_before",
        "draws",
        "ended",
        "max_known",
        "next_step",
        "next_update",
        "num_computed",
        "num_expected",
        "num_passed",
        "num_preemptions",
        "num_shared",
        "seq_id",
        "table",
        "token_ids",
        "tracked",
        "watch",
    )

    def __init__(
        self,
        seq_id: int,
        tracked: TrackedRequest,
        draws: tuple[int, ...],
        token_ids: list[int],
        table: BlockTable,
    ) -> None:
        self.seq_id = seq_id
        self.tracked = tracked
        self.draws = draws
        self.token_ids = token_ids
        self.table = table
        self.num_computed = 0
        self.num_expected = 0
        self.num_shared = 0
        self.num_passed = 0
        self.watch: Watch | None = None
        self.max_known = tracked.num_prompt_tokens + tracked.request.max_tokens
        self.num_preemptions = 0
        self._num_computed_before = 0  # the most before a preemption
        self.next_step: SequenceStep | None = None
        self.next_update: SequenceUpdate
        self.ended = False

    @classmethod
    def first(cls, tracked: TrackedRequest, cache: KVCache) -> Sequence:
        """The sequence that computes a request's prompt, on behalf of all its completions."""
        request = tracked.request
        token_ids = list(request.prompt_token_ids)
        draws = tuple(range(request.params.n))
        table = BlockTable(cache, token_ids, request.cache_salt, request.urgency.priority)
        return cls(-1, tracked, draws, token_ids, table)

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts sequences by age: the order of arrival, then the completion."""
        return self.tracked.order, self.draws[0]

    @property
    def cache_salt(self) -> str:
        """Sequences with the same one share blocks."""
        return self.tracked.request.cache_salt

    @property
    def num_missing(self) -> int:
        """Known tokens that are not computed; at least 1 while the sequence lives."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_left(self) -> int:
        """Tokens that each of its completions may still generate."""
        return self.max_known - len(self.token_ids)

    @property
    def is_settled(self) -> bool:
        """Whether it has been preempted so often that it will not be again, see `Room`."""
        return self.num_preemptions >= _MOST_PREEMPTIONS

    @property
    def num_uncached(self) -> int:
        """Known tokens that will have to be computed, as far as can be told before it starts."""
        return len(self.token_ids) - max(self.num_computed, self.num_expected)

    @property
    def load(self) -> StepLoad:
        """The work of computing those, without what another computes for it."""
        known = max(self.num_computed, self.num_expected, self.num_shared)
        return StepLoad.prompt(len(self.token_ids) - known, known)

    @property
    def is_stream(self) -> bool:
        """Whether it has begun to answer."""
        return len(self.token_ids) > self.tracked.num_prompt_tokens

    @property
    def max_cached_tokens(self) -> int:
        """Leading tokens that need not be computed if their KV is in the cache.

        The last known token is always computed, since the next one is sampled from its logits; so
        is a prompt token whose successor still has to be scored.
        """
        if self.tracked.num_unscored:
            return len(self.tracked.prompt_logprobs)
        return len(self.token_ids) - 1

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the sequence ends with its newest token, an output token; None if it goes on."""
        if self.token_ids[-1] in self.tracked.stop_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.token_ids) >= self.max_known else None

    def step(self, count: int) -> SequenceStep:
        """The plan for computing the next ``count`` tokens.

        The block table and the history are not copied: they are valid until the next plan. That of
        a stream is kept as its ``next_step`` where little will change from one to the next.
        """
        tracked, request = self.tracked, self.tracked.request
        params = request.params
        start, stop = self.num_computed, self.num_computed + count
        last = stop == len(self.token_ids) and request.max_tokens > 0
        score = self._score_token_ids(start, stop) if tracked.num_unscored else ()
        step = SequenceStep(
            self.seq_id,
            self.token_ids[start:stop],
            start,
            self.table.covering(stop),
            self.draws if last else (),
            params if last or score else None,
            request.seed,
            history=self.token_ids if last and tracked.penalised else (),
            num_prompt_tokens=tracked.num_prompt_tokens,
            banned_token_ids=self._banned_token_ids() if last and params.min_tokens else (),
            score_token_ids=score,
        )
        if self.is_stream and last and not step.banned_token_ids and count == 1:
            self.next_step = step
            self.next_update = tracked.update(self.draws[0])
        return step

    def extend(self, step: SequenceStep, outcome: SequenceResult) -> SequenceUpdate:
        """Take in the token that ``step``, the ``next_step``, gave, and report it.

        What `take_in` and `draw` do for any step, at a fraction of the cost: every stream pays it
        for every token.
        """
        token_ids, table, update = self.token_ids, self.table, self.next_update
        self.num_computed = computed = len(token_ids)
        if computed < table.writable:
            table.computed = computed
        else:
            table.publish(computed)
        step.start = computed
        step.token_ids = update.token_ids = outcome.token_ids
        update.logprobs = outcome.logprobs
        (token_id,) = outcome.token_ids
        token_ids.append(token_id)
        if computed + 1 >= self.max_known or token_id in self.tracked.stop_ids:
            update.finish_reason = self.finish_reason
        return update

    def take_in(self, step: SequenceStep, outcome: SequenceResult) -> int:
        """Note that the tokens of ``step`` are computed, and their scores.

        Returns:
            How many of the tokens had been computed before.
        """
        stop = step.start + len(step.token_ids)
        if outcome.prompt_logprobs:
            collected = self.tracked.prompt_logprobs
            collected.extend(outcome.prompt_logprobs[len(collected) - step.start :])
        self.num_computed = stop
        self.table.publish(stop)
        return max(0, min(stop, self._num_computed_before) - step.start)

    def split(self, seq_ids: Iterator[int]) -> list[Sequence]:
        """Keep the first of the draws, and make a sequence over the same blocks for each other."""
        draws, self.draws = self.draws, self.draws[:1]
        children: list[Sequence] = []
        for draw in draws[1:]:
            token_ids = list(self.token_ids)
            table = self.table.fork(token_ids)
            child = Sequence(next(seq_ids), self.tracked, (draw,), token_ids, table)
            child.num_computed = self.num_computed
            children.append(child)
        self.tracked.sequences += children
        return children

    def pause(self) -> None:
        """Give the blocks up; the known tokens stay."""
        self.num_preemptions += 1
        self._num_computed_before = max(self._num_computed_before, self.num_computed)
        self.num_computed = self.num_expected = self.num_shared = 0
        self.next_step = None
        self.table.release()

    def _banned_token_ids(self) -> tuple[int, ...]:
        num_output = len(self.token_ids) - self.tracked.num_prompt_tokens
        if num_output >= self.tracked.request.params.min_tokens:
            return ()
        return tuple(sorted(self.tracked.stop_ids))

    def _score_token_ids(self, start: int, stop: int) -> tuple[int, ...]:
        if stop <= len(self.tracked.prompt_logprobs):
            return ()  # recomputed after a preemption: scored before it
        return self.tracked.request.prompt_token_ids[start + 1 : stop + 1]
