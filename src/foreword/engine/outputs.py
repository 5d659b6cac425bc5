"""What the engine gives back: deltas while a request runs, and the whole at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from foreword.core.request import FinishReason
from foreword.core.step import TokenLogprob


@dataclass(slots=True)  # not frozen: that takes four times as long to make, for every token
class CompletionDelta:
    """What one completion gained.

    Attributes:
        index: which of the request's ``n`` completions.
        text: new text; empty only where the completion ends.
        token_ids: the tokens behind it. Several where a character is spread over tokens or text was
            withheld because it might have become a stop string.
        logprobs: one for each token where they were asked for.
        finish_reason: set on the last delta of the completion.
        stop_reason: the stop string or stop token that ended it; None for end of sequence.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)  # not frozen: the same
class RequestDelta:
    """What one step brought a request.

    Attributes:
        completions: those that gained something, at most one delta each.
        num_cached_tokens: prompt tokens that came from the prefix cache.
        prompt_logprobs: once, on the first delta, where they were asked for: one for each prompt
            token but the first.
        error: what went wrong, on the last delta of a request that failed.
        finished: whether this is the request's last delta.
    """

    request_id: str
    completions: tuple[CompletionDelta, ...]
    num_prompt_tokens: int
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    error: Exception | None = None
    finished: bool = False


@dataclass(slots=True)
class CompletionOutput:
    """One finished completion."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def extend(self, delta: CompletionDelta) -> None:
        """Append what a delta brought."""
        self.text += delta.text
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason


@dataclass(slots=True)
class RequestOutput:
    """A finished request, as `LLM.generate` returns it.

    Attributes:
        prompt: the prompt's text, where it was given as text.
        ttft_s: seconds from the request's arrival in the engine to its first text.
        e2e_s: seconds from its arrival to its end.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    prompt_logprobs: list[TokenLogprob] | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None

    def extend(self, delta: RequestDelta) -> None:
        """Append what a delta brought."""
        self.num_cached_tokens = delta.num_cached_tokens
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = list(delta.prompt_logprobs)
        for completion in delta.completions:
            self.outputs[completion.index].extend(completion)
