"""From a completion's tokens to the text its reader may see."""

from __future__ import annotations

from foreword.core.params import SamplingParams
from foreword.core.request import FinishReason
from foreword.core.step import TokenLogprob
from foreword.engine.outputs import CompletionDelta
from foreword.text.stop import StopStrings
from foreword.text.tokenizer import Tokenizer

_STOP = FinishReason.STOP  # looking it up there takes 70 ns, for every token


class CompletionStream:
    """Detokenises one completion and watches for its stop strings.

    Tokens whose text is not certain yet (part of a character, or text that may become a stop
    string) wait here and come out together with the text that settles them.
    """

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self.index = index
        self._min_tokens = params.min_tokens
        self._stop_token_ids = params.stop_token_ids
        self._detokenizer = tokenizer.detokenizer(continues_text=True)
        self._stops = StopStrings(params.stop)
        self._watches = bool(params.stop)
        self._num_tokens = 0
        self._token_ids: tuple[int, ...] = ()  # tuples: where nothing waits they are passed on
        self._logprobs: tuple[TokenLogprob, ...] = ()
        self.finished = False

    def push(
        self,
        token_ids: tuple[int, ...],
        logprobs: tuple[TokenLogprob, ...],
        finish_reason: FinishReason | None,
    ) -> CompletionDelta | None:
        """Take what a step sampled; None where there is nothing to show yet.

        A delta with ``stop_reason`` set to a string ends the completion, whatever the scheduler
        thinks: the caller must abort it there.
        """
        # a token that was sampled to stop ends the text, and is not part of it
        visible = token_ids[:-1] if finish_reason is _STOP else token_ids
        text = ""
        if self._watches:
            text, matched, num_read = self._watch(visible)
            if matched is not None:  # what comes after it was never wanted
                self._token_ids += token_ids[:num_read]
                self._logprobs += logprobs[:num_read]
                return self._take(text, _STOP, matched)
        else:
            for token_id in visible:
                text += self._detokenizer.push(token_id)
        self._token_ids += token_ids
        self._logprobs += logprobs
        if finish_reason is not None:
            return self._end(text, finish_reason, token_ids)
        return self._take(text, None, None) if text else None

    def fail(self) -> CompletionDelta:
        """End the completion after an error; text that was still withheld is dropped."""
        return self._take("", FinishReason.ERROR, None)

    def _watch(self, token_ids: tuple[int, ...]) -> tuple[str, str | None, int]:
        """Read tokens up to a stop string: the text, which one, and how many have been read."""
        text = ""
        for position, token_id in enumerate(token_ids, start=1):
            self._num_tokens += 1
            shown, matched = self._show(self._detokenizer.push(token_id))
            text += shown
            if matched is not None:
                return text, matched, position
        return text, None, len(token_ids)

    def _show(self, text: str) -> tuple[str, str | None]:
        if self._num_tokens <= self._min_tokens:  # too early to stop
            return text, None
        return self._stops.push(text)

    def _end(
        self, text: str, finish_reason: FinishReason, token_ids: tuple[int, ...]
    ) -> CompletionDelta:
        shown, matched = self._show(self._detokenizer.flush())
        text += shown
        if matched is not None:
            return self._take(text, _STOP, matched)
        last = token_ids[-1] if token_ids else None
        stop_token = last if last in self._stop_token_ids else None
        return self._take(text + self._stops.flush(), finish_reason, stop_token)

    def _take(
        self, text: str, finish_reason: FinishReason | None, stop_reason: str | int | None
    ) -> CompletionDelta:
        delta = CompletionDelta(
            self.index, text, self._token_ids, self._logprobs, finish_reason, stop_reason
        )
        self._token_ids = self._logprobs = ()
        self.finished = finish_reason is not None
        return delta
