"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from foreword.core.step import TokenLogprob
from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
from foreword.server.answers import respond
from foreword.server.asgi import lifetime_of
from foreword.server.chunks import compact
from foreword.server.direct import post_directly
from foreword.server.logprobs import completion_logprobs, prompt_logprobs
from foreword.server.schema import CompletionRequest, parse
from foreword.server.service import Service
from foreword.text.tokenizer import Tokenizer


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoint to ``app``."""

    @post_directly(app, "/v1/completions", CompletionRequest)
    async def completions(request: Request) -> Response:
        """Continue one or more texts."""
        body = parse(CompletionRequest, await service.json(request))
        service.check_model(body.model)
        params, urgency = body.params(), body.urgency()
        texts = body.prompts()
        life = lifetime_of(request)
        life.parsed_s = time.monotonic()
        salt = service.cache_salt(request, body.cache_salt)
        prompts = [
            await service.engine.encode(prompt, cache_salt=salt)
            if isinstance(prompt, str)
            else prompt
            for prompt in texts
        ]
        life.tokenised_s = time.monotonic()
        generation = service.generation(
            request,
            "cmpl",
            prompts,
            params,
            param="prompt",
            stream=bool(body.stream),
            cache_salt=body.cache_salt,
            urgency=urgency,
        )
        dialect = CompletionDialect(
            service.engine.tokenizer,
            prompts,
            texts if body.echo else None,
            n=params.n,
            with_logprobs=params.logprobs is not None,
            with_prompt_logprobs=body.prompt_logprobs is not None,
        )
        return await respond(
            service,
            request,
            generation,
            dialect,
            include_usage=body.include_usage,
            include_timing=bool(body.timing),
        )


class CompletionDialect:
    """Answers as plain text, with the prompt before it where ``echo`` asks for that.

    Args:
        prompts: token ids of each prompt.
        echoes: each prompt as it was given, text or token ids, or None for no echo.
        with_logprobs: whether ``logprobs`` was asked for; with an echo it covers the prompt.
        with_prompt_logprobs: whether vLLM's ``prompt_logprobs`` was asked for.
    """

    object = "text_completion"
    chunk_object = "text_completion"

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[int]],
        echoes: Sequence[str | Sequence[int]] | None,
        *,
        n: int,
        with_logprobs: bool,
        with_prompt_logprobs: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._echoes = echoes
        self._n = n
        self._with_logprobs = with_logprobs
        self._with_prompt_logprobs = with_prompt_logprobs
        self._offsets: dict[int, int] = {}  # choice → characters written so far

    def opening(self, prompt: int, choice: int, delta: RequestDelta) -> str | None:
        """Return the echo."""
        if self._echoes is None:
            return None
        echo = self._echo(prompt)
        self._offsets[choice] = len(echo)
        entries = "null"
        if self._with_logprobs:
            scored = self._scored_prompt(prompt, delta.prompt_logprobs or ())
            entries = compact(completion_logprobs(self._tokenizer, scored, 0))
        return f'"text":{compact(echo)},"logprobs":{entries}'

    def content(self, choice: int, text: str, logprobs: tuple[TokenLogprob, ...]) -> str:
        """Return a piece of the text."""
        entries = "null"
        if logprobs:
            offset = self._offsets.get(choice, 0)
            entries = compact(completion_logprobs(self._tokenizer, _scored(logprobs), offset))
        self._offsets[choice] = self._offsets.get(choice, 0) + len(text)
        return f'"text":{compact(text)},"logprobs":{entries}'

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the texts, prompt by prompt."""
        return {
            "choices": [
                self._choice(index, output, part)
                for index, output in enumerate(outputs)
                for part in output.outputs
            ]
        }

    def _choice(self, prompt: int, output: RequestOutput, part: CompletionOutput) -> dict[str, Any]:
        echo = self._echo(prompt)
        scored = [*_scored(part.logprobs)]
        if self._echoes is not None:
            scored = self._scored_prompt(prompt, output.prompt_logprobs or ()) + scored
        choice = {
            "index": prompt * self._n + part.index,
            "text": echo + part.text,
            "logprobs": completion_logprobs(self._tokenizer, scored, 0)
            if self._with_logprobs
            else None,
            "finish_reason": part.finish_reason,
            "stop_reason": part.stop_reason,
        }
        if self._with_prompt_logprobs:
            entries = output.prompt_logprobs or ()
            choice["prompt_logprobs"] = prompt_logprobs(self._tokenizer, entries)
        return choice

    def _echo(self, prompt: int) -> str:
        """Return the text to put first; only called once the engine has accepted the token ids."""
        given = "" if self._echoes is None else self._echoes[prompt]
        return (
            given if isinstance(given, str) else self._tokenizer.decode(given, skip_special=False)
        )

    def _scored_prompt(
        self, prompt: int, entries: Sequence[TokenLogprob]
    ) -> list[tuple[int, TokenLogprob | None]]:
        return [(self._prompts[prompt][0], None), *_scored(entries)]


def _scored(entries: Sequence[TokenLogprob]) -> list[tuple[int, TokenLogprob | None]]:
    return [(entry.token_id, entry) for entry in entries]
