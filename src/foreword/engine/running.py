"""A request while the engine has it: what its tokens make of its text and its trace."""

from __future__ import annotations

from foreword.core.step import TokenLogprob
from foreword.core.trace import RequestTrace, StepRecord
from foreword.engine.completion import CompletionStream
from foreword.engine.outputs import CompletionDelta, RequestDelta
from foreword.errors import BackendError
from foreword.sched import Sequence, SequenceUpdate
from foreword.text.tokenizer import Tokenizer


class RunningRequest:
    """A request between `Engine.add` and its last delta.

    Attributes:
        prompt: what computes its prompt.
        trace: is filled in with each update.
    """

    __slots__ = (
        "_completions",
        "_num_unfinished",
        "_prompt_logprobs",
        "_request",
        "prompt",
        "trace",
    )

    def __init__(self, prompt: Sequence, trace: RequestTrace, tokenizer: Tokenizer) -> None:
        request = self._request = prompt.tracked.request
        self.prompt = prompt
        self.trace = trace
        self._num_unfinished = request.params.n
        self._completions = [
            CompletionStream(index, request.params, tokenizer) for index in range(request.params.n)
        ]
        self._prompt_logprobs: tuple[TokenLogprob, ...] | None = None  # for the next delta

    def take_in(self, update: SequenceUpdate, record: StepRecord) -> CompletionDelta | None:
        """Take what a step brought one of its completions; None: there is nothing to show yet."""
        trace = self.trace
        trace.last = record
        trace.num_output_tokens += len(update.token_ids)
        if trace.first_sampled is None:
            trace.num_cached_tokens = update.num_cached_tokens
            trace.first_sampled = record if update.token_ids else None
            self._prompt_logprobs = update.prompt_logprobs or self._prompt_logprobs
        delta = self._completions[update.index].push(
            update.token_ids, update.logprobs, update.finish_reason
        )
        if delta is not None:
            if delta.finish_reason is not None:
                self._num_unfinished -= 1
            if trace.first_text is None and delta.text:
                trace.first_text = record
        return delta

    def delta(
        self, completions: list[CompletionDelta], error: BackendError | None = None
    ) -> RequestDelta:
        """What goes to the reader, after a step that brought these."""
        prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        return RequestDelta(
            self._request.request_id,
            tuple(completions),
            len(self._request.prompt_token_ids),
            self.trace.num_cached_tokens,
            prompt_logprobs,
            error,
            self._num_unfinished == 0,
        )

    def fail(self, error: BackendError, record: StepRecord) -> RequestDelta:
        """End all of it with an error; text that was still withheld is dropped."""
        self.trace.last = record
        ended = [each.fail() for each in self._completions if not each.finished]
        self._num_unfinished = 0
        return self.delta(ended, error)
