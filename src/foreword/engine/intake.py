"""What a caller asks for, checked and completed: requests that can be scheduled as they are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

from foreword.core.params import SamplingParams
from foreword.core.request import NOT_URGENT, Request, Urgency
from foreword.errors import ContextLengthError, InvalidRequestError


class Intake:
    """Makes requests.

    Args:
        eos_token_ids: end a completion, unless its parameters ignore them.
        vocab_size: token ids are below it.
        max_model_len: tokens that one sequence may have, prompt and output together.
        max_sequence_tokens: the same, as far as the KV pool goes.
        seed: of the seeds for requests that bring none.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        eos_token_ids: frozenset[int],
        vocab_size: int,
        max_model_len: int,
        max_sequence_tokens: int,
        seed: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._eos_token_ids = eos_token_ids
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._max_sequence_tokens = max_sequence_tokens
        self._clock = clock
        self._ids = itertools.count()
        self._seeds = random.Random(seed)

    def make_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        request_id: str | None = None,
        arrival_s: float | None = None,
        cache_salt: str = "",
        urgency: Urgency = NOT_URGENT,
        tenant: str = "",
    ) -> Request:
        """Check a request and complete it.

        ``max_tokens`` is cut to what the context leaves: such a completion ends with ``length``.

        Raises:
            InvalidRequestError: no prompt, or ids outside the vocabulary.
            ContextLengthError: the prompt leaves no room in the context.
        """
        max_tokens = self._max_tokens(len(prompt_token_ids), params.max_tokens)
        prompt = tuple(prompt_token_ids)
        self._check_prompt(prompt)
        params.check_token_ids(self._vocab_size)
        return Request(
            request_id=request_id if request_id is not None else f"req-{next(self._ids)}",
            prompt_token_ids=prompt,
            params=params,
            max_tokens=max_tokens,
            eos_token_ids=frozenset() if params.ignore_eos else self._eos_token_ids,
            seed=self._seeds.getrandbits(64) if params.seed is None else params.seed % 2**64,
            arrival_s=self._clock() if arrival_s is None else arrival_s,
            cache_salt=cache_salt,
            urgency=urgency,
            tenant=tenant,
        )

    def _check_prompt(self, prompt: tuple[int, ...]) -> None:
        if not prompt:
            raise InvalidRequestError("the prompt has no tokens", param="prompt")
        if set(map(type, prompt)) != {int}:
            raise InvalidRequestError("token ids must be integers", param="prompt")
        vocab_size = self._vocab_size
        for token_id in (min(prompt), max(prompt)):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"token id {token_id} is outside the vocabulary of {vocab_size}", param="prompt"
                )

    def _max_tokens(self, num_prompt_tokens: int, asked: int | None) -> int:
        """Tokens to generate at most: what was asked for, as far as the context goes."""
        room = self._max_model_len - num_prompt_tokens
        if room < (0 if asked == 0 else 1):
            raise ContextLengthError(
                f"the prompt has {num_prompt_tokens} tokens, and the context holds "
                f"{self._max_model_len} with at least one for the answer",
                prompt_tokens=num_prompt_tokens,
                limit_tokens=self._max_model_len,
                param="prompt",
            )
        if asked is not None:
            return min(asked, room)
        return max(1, min(room, self._max_sequence_tokens - num_prompt_tokens))
