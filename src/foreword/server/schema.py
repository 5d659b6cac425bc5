"""Request bodies: types and list lengths are checked here, ranges in `SamplingParams`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from foreword.core.params import (
    MAX_LOGIT_BIAS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    SamplingParams,
)
from foreword.core.request import Urgency
from foreword.errors import InvalidRequestError
from foreword.server.errors import ApiError, spelled

MAX_MEMBERS = 256  # of a body, known or not
MAX_MESSAGES = 8192
MAX_PARTS = 8192  # of all messages together
MAX_PROMPTS = 1024
MAX_PIN_S = 30 * 86400.0
MAX_SALT = 1024  # characters

# Parameters that say who asks, where to file it or how to bill it: they do not change the answer.
IGNORED = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
# Values that ask for nothing, of parameters that foreword does not have (yet).
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "annotations": ([],),
    "best_of": (1,),
    "functions": ([],),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_calls": ([],),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
}
# What to say of a field that takes several types.
_UNIONS = {
    "content": "text or a list of text parts",
    "prompt": "text, a list of texts, token ids, or a list of lists of token ids, and not empty",
    "stop": f"a string or a list of at most {MAX_STOP_STRINGS} strings",
}


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow", frozen=True)

    def refuse_unknown(self, where: str = "") -> None:
        """Refuse what is not known, unless it cannot change the answer."""
        for name, value in (self.model_extra or {}).items():
            if value is None or name in IGNORED or value in _NEUTRAL.get(name, ()):
                continue
            path = where + name
            raise ApiError(
                400, f"{path} is not supported", param=path, code="unsupported_parameter"
            )


class TextPart(_Body):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class Message(_Body):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1, fail_fast=True)]
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """Return what chat templates know: ``developer`` is OpenAI's newer word for ``system``."""
        role = "system" if self.role == "developer" else self.role
        content = self.content
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": content, **named}


class Conversation(_Body):
    """Messages, and whether an answer shall follow."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    add_generation_prompt: bool | None = None

    @field_validator("messages", mode="before")
    @classmethod
    def _count_parts(cls, messages: Any) -> Any:
        """Refuse very many parts before each becomes an object, which would take seconds."""
        if isinstance(messages, list) and sum(map(_num_parts, messages)) > MAX_PARTS:
            raise PydanticCustomError("too_many_parts", f"must have at most {MAX_PARTS} parts")
        return messages

    def refuse_unknown(self, where: str = "") -> None:
        """Look into the messages too."""
        super().refuse_unknown(where)
        for index, message in enumerate(self.messages):
            message.refuse_unknown(f"messages[{index}].")
            if not isinstance(message.content, str):
                for number, part in enumerate(message.content):
                    part.refuse_unknown(f"messages[{index}].content[{number}].")

    def for_template(self) -> list[dict[str, str]]:
        """Return the messages as the chat template takes them."""
        return [message.for_template() for message in self.messages]

    @property
    def wants_answer(self) -> bool:
        """Whether the prompt ends with the start of an answer."""
        return self.add_generation_prompt is not False


class StreamOptions(_Body):
    """What a stream carries besides the answer."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding against eavesdroppers; none is added


CacheSalt = Annotated[str, Field(min_length=1, max_length=MAX_SALT)]


class _Sampled(_Body):
    """What both completion endpoints take. None means the default."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=MAX_LOGIT_BIAS)] | None = None
    seed: int | None = None
    min_tokens: int | None = None
    stop: (
        Annotated[
            str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)],
            Field(union_mode="left_to_right"),
        ]
        | None
    ) = None
    stop_token_ids: (
        Annotated[list[int], Field(max_length=MAX_STOP_TOKEN_IDS, fail_fast=True)] | None
    ) = None
    ignore_eos: bool | None = None
    prompt_logprobs: int | None = None
    cache_salt: CacheSalt | None = None
    timing: bool | None = None
    priority: int | None = None
    ttft_slo_ms: float | None = None

    def urgency(self) -> Urgency:
        """Return how soon the answer is wanted.

        Raises:
            InvalidRequestError: a value that cannot work.
        """
        return Urgency(priority=self.priority or 0, ttft_slo_ms=self.ttft_slo_ms)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def refuse_unknown(self, where: str = "") -> None:
        """Look into the stream's options too, and refuse what only fits one kind of response."""
        super().refuse_unknown(where)
        if self.stream_options is not None:
            if not self.stream:
                raise ApiError(400, "stream_options needs stream=true", param="stream_options")
            self.stream_options.refuse_unknown("stream_options.")
        if self.stream and self.prompt_logprobs is not None:
            raise ApiError(
                400, "prompt_logprobs is not available in a stream", param="prompt_logprobs"
            )

    def _params(self, names: dict[str, str], **own: Any) -> SamplingParams:
        """Make `SamplingParams` of what is set; ``own`` are the endpoint's, under our names."""
        shared = {
            name: value
            for name in self.model_fields_set & SamplingParams.__dataclass_fields__.keys()
            if name not in own and (value := getattr(self, name)) is not None
        }
        if self.logit_bias is not None:
            shared["logit_bias"] = [_bias(*entry) for entry in self.logit_bias.items()]
        with spelled(names):
            return SamplingParams(**shared, **own)


class ChatRequest(_Sampled, Conversation):
    """Body of ``POST /v1/chat/completions``."""

    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def params(self) -> SamplingParams:
        """Return how to sample.

        Raises:
            InvalidRequestError: a value that cannot work; named as the caller spells it.
        """
        names = {"logprobs": "top_logprobs"}
        max_tokens = self.max_tokens
        if self.max_completion_tokens is not None:
            max_tokens = self.max_completion_tokens
            names["max_tokens"] = "max_completion_tokens"
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequestError("top_logprobs needs logprobs=true", param="top_logprobs")
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self._params(names, max_tokens=max_tokens, logprobs=logprobs)


class CompletionRequest(_Sampled):
    """Body of ``POST /v1/completions``."""

    prompt: Annotated[
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)]
        | Annotated[list[int], Field(min_length=1, fail_fast=True)]
        | Annotated[
            list[Annotated[list[int], Field(fail_fast=True)]],
            Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True),
        ],
        Field(union_mode="left_to_right"),
    ]
    echo: bool | None = None
    logprobs: int | None = None

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts one by one, each a text or token ids."""
        prompt: Any = self.prompt
        single = isinstance(prompt, str) or isinstance(prompt[0], int)
        return [prompt] if single else prompt

    def params(self) -> SamplingParams:
        """Return how to sample; with ``echo``, ``logprobs`` covers the prompt too.

        Raises:
            InvalidRequestError: a value that cannot work.
        """
        own: dict[str, Any] = {"logprobs": self.logprobs, "prompt_logprobs": self.prompt_logprobs}
        if self.echo and self.logprobs is not None and self.prompt_logprobs is None:
            own["prompt_logprobs"] = self.logprobs
        names = {} if self.prompt_logprobs is not None else {"prompt_logprobs": "logprobs"}
        return self._params(names, **own)


class _Prefix(_Body):
    """What the endpoints of the prefix cache take; ``ttl_s`` pins."""

    model: str | None = None
    priority: int | None = None
    cache_salt: CacheSalt | None = None
    ttl_s: Annotated[float, Field(gt=0, le=MAX_PIN_S)] | None = None


class WarmRequest(_Prefix):
    """Body of ``POST /v1/cache/warm`` and ``/v1/cache/pin`` with a prompt."""

    prompt: str | Annotated[list[int], Field(min_length=1, fail_fast=True)]


class WarmChatRequest(_Prefix, Conversation):
    """The same with messages: the beginning of conversations."""


class TokenizeRequest(_Body):
    """Body of ``POST /tokenize`` with a text."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChatRequest(Conversation):
    """Body of ``POST /tokenize`` with messages."""

    model: str | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(_Body):
    """Body of ``POST /detokenize``."""

    model: str | None = None
    tokens: Annotated[list[int], Field(fail_fast=True)]


_Request = TypeVar("_Request", bound=_Body)


def parse_json(body: bytes) -> Any:
    """Decode a body.

    Raises:
        ApiError: 400, the body is not JSON.
    """
    try:
        return from_json(body)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None


def parse(model: type[_Request], data: Any) -> _Request:
    """Check a decoded body.

    Raises:
        ApiError: 400, the message and ``param`` name the field.
    """
    if isinstance(data, dict) and len(data) > MAX_MEMBERS:
        raise ApiError(400, f"the body has {len(data)} members; at most {MAX_MEMBERS} are accepted")
    try:
        request = model.model_validate(data)
    except ValidationError as error:
        raise _explain(error.errors(include_url=False, include_input=False)[0]) from None
    request.refuse_unknown()
    return request


def _explain(error: ErrorDetails) -> ApiError:
    path, message = "", error["msg"].replace("Input should be", "must be")
    for part in error["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        path += f".{part}" if path else part
        if part in _UNIONS and error["type"] != "missing":
            message = f"must be {_UNIONS[part]}"
            break
    if not path:
        return ApiError(400, "the body must be a JSON object")
    return ApiError(400, f"{path} {message[0].lower()}{message[1:]}", param=path)


def _num_parts(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    return len(content) if isinstance(content, list) else 0


def _bias(token_id: str, value: float) -> tuple[int, float]:
    if not (token_id.isascii() and token_id.isdecimal() and len(token_id) <= 10):
        raise InvalidRequestError(f"logit_bias: {token_id!r} is no token id", param="logit_bias")
    return int(token_id), value
