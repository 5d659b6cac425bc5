"""How the next token is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foreword.errors import InvalidRequestError

MAX_N = 128
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 64
MAX_STOP_STRING_CHARS = 1024
MAX_STOP_TOKEN_IDS = 256
MAX_LOGIT_BIAS = 1024


def check_number(name: str, value: object, low: float, high: float, *, open_low: bool) -> None:
    """Raise `InvalidRequestError` unless ``value`` is a number in the range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequestError(f"{name} must be a number, not {value!r}", param=name)
    if not low <= value <= high or (open_low and value == low):  # NaN fails the first part
        bracket = "(" if open_low else "["
        raise InvalidRequestError(
            f"{name} must be in {bracket}{low:g}, {high:g}], not {value}", param=name
        )


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidRequestError` unless ``value`` is an integer in the range."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{name} must be an integer, not {value!r}", param=name)
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} must be in [{low}, {high}], not {value}", param=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn and when drawing stops; names and meanings as in vLLM.

    The logits of one position pass, in this order: ``logit_bias``, the penalties, ``temperature``,
    ``min_p``, ``top_k``, ``top_p``. ``temperature=0`` is greedy: the highest logit after bias and
    penalties, the lowest id on a tie.

    ``repetition_penalty`` looks at prompt and output; ``presence_penalty`` and
    ``frequency_penalty`` at the output only. With a ``seed`` the draws depend on nothing but the
    seed, the completion's index and the position: not on what else is in the batch.

    ``max_tokens=None`` means the rest of the context. ``logprobs`` is how many alternatives to
    report for each sampled token (0: the sampled token alone), ``prompt_logprobs`` the same for
    the prompt's tokens.

    Raises:
        InvalidRequestError: a value is of the wrong type, not finite, or out of range.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] = ()
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] | list[str] | str = ()
    stop_token_ids: tuple[int, ...] | list[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        self._check_scalars()
        self._normalise_lists()
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens ({self.min_tokens}) is greater than max_tokens ({self.max_tokens})",
                param="min_tokens",
            )

    def _check_scalars(self) -> None:
        check_int("n", self.n, 1, MAX_N)
        check_number("temperature", self.temperature, 0.0, 100.0, open_low=False)
        if self.top_k == -1:  # vLLM's spelling of "off"
            object.__setattr__(self, "top_k", 0)
        check_int("top_k", self.top_k, 0, 2**31 - 1)
        check_number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        check_number("min_p", self.min_p, 0.0, 1.0, open_low=False)
        check_number("presence_penalty", self.presence_penalty, -2.0, 2.0, open_low=False)
        check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0, open_low=False)
        check_number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        if self.seed is not None:
            check_int("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 0, 2**31 - 1)
        check_int("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if not isinstance(self.ignore_eos, bool):
            raise InvalidRequestError("ignore_eos must be true or false", param="ignore_eos")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0, MAX_LOGPROBS)

    def _normalise_lists(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if len(stop) > MAX_STOP_STRINGS:
            raise InvalidRequestError(f"at most {MAX_STOP_STRINGS} stop strings", param="stop")
        for text in stop:
            if not isinstance(text, str) or not text:
                raise InvalidRequestError("stop strings must be non-empty strings", param="stop")
            if len(text) > MAX_STOP_STRING_CHARS:
                raise InvalidRequestError(
                    f"a stop string has at most {MAX_STOP_STRING_CHARS} characters", param="stop"
                )
        object.__setattr__(self, "stop", stop)

        ids = tuple(self.stop_token_ids)
        if len(ids) > MAX_STOP_TOKEN_IDS:
            raise InvalidRequestError(
                f"at most {MAX_STOP_TOKEN_IDS} stop token ids", param="stop_token_ids"
            )
        for token_id in ids:
            check_int("stop_token_ids", token_id, 0, 2**31 - 1)
        object.__setattr__(self, "stop_token_ids", ids)

        bias = self.logit_bias
        pairs = tuple(bias.items()) if isinstance(bias, Mapping) else tuple(bias)
        if len(pairs) > MAX_LOGIT_BIAS:
            raise InvalidRequestError(
                f"at most {MAX_LOGIT_BIAS} entries in logit_bias", param="logit_bias"
            )
        for token_id, value in pairs:
            check_int("logit_bias", token_id, 0, 2**31 - 1)
            check_number("logit_bias", value, -100.0, 100.0, open_low=False)
        object.__setattr__(self, "logit_bias", pairs)

    @property
    def greedy(self) -> bool:
        """Whether the highest logit is always taken."""
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        """Whether earlier tokens change the logits."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )

    def check_token_ids(self, vocab_size: int) -> None:
        """Raise `InvalidRequestError` where an id in a list is outside the vocabulary."""
        for token_id in self.stop_token_ids:
            if token_id >= vocab_size:
                raise InvalidRequestError(
                    f"stop_token_ids: {token_id} is outside the vocabulary of {vocab_size}",
                    param="stop_token_ids",
                )
        for token_id, _ in self.logit_bias:  # type: ignore[misc]  # normalised to pairs
            if token_id >= vocab_size:
                raise InvalidRequestError(
                    f"logit_bias: {token_id} is outside the vocabulary of {vocab_size}",
                    param="logit_bias",
                )
