"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from foreword.core.step import TokenLogprob
from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
from foreword.server.answers import respond
from foreword.server.asgi import lifetime_of
from foreword.server.chunks import compact
from foreword.server.direct import post_directly
from foreword.server.logprobs import chat_logprobs, prompt_logprobs
from foreword.server.schema import ChatRequest, parse
from foreword.server.service import Service
from foreword.text.tokenizer import Tokenizer


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoint to ``app``."""

    @post_directly(app, "/v1/chat/completions", ChatRequest)
    async def chat_completions(request: Request) -> Response:
        """Continue a conversation."""
        body = parse(ChatRequest, await service.json(request))
        service.check_model(body.model)
        params, urgency = body.params(), body.urgency()
        messages = body.for_template()
        life = lifetime_of(request)
        life.parsed_s = time.monotonic()

        def rendered() -> None:
            life.templated_s = time.monotonic()

        prompt = await service.engine.encode_chat(
            messages,
            add_generation_prompt=body.wants_answer,
            on_rendered=rendered,
            cache_salt=service.cache_salt(request, body.cache_salt),
        )
        life.tokenised_s = time.monotonic()
        generation = service.generation(
            request,
            "chatcmpl",
            [prompt],
            params,
            param="messages",
            stream=bool(body.stream),
            cache_salt=body.cache_salt,
            urgency=urgency,
        )
        dialect = ChatDialect(service.engine.tokenizer, with_logprobs=params.logprobs is not None)
        return await respond(
            service,
            request,
            generation,
            dialect,
            include_usage=body.include_usage,
            include_timing=bool(body.timing),
        )


class ChatDialect:
    """Answers as messages of the assistant."""

    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, *, with_logprobs: bool) -> None:
        self._tokenizer = tokenizer
        self._with_logprobs = with_logprobs

    def opening(self, prompt: int, choice: int, delta: RequestDelta) -> str:
        """Name the role, once."""
        del prompt, choice, delta
        return '"delta":{"role":"assistant","content":""},"logprobs":null'

    def content(self, choice: int, text: str, logprobs: tuple[TokenLogprob, ...]) -> str:
        """Return a piece of the message."""
        del choice
        delta = f'{{"content":{compact(text)}}}' if text else "{}"
        entries = compact(chat_logprobs(self._tokenizer, logprobs)) if logprobs else "null"
        return f'"delta":{delta},"logprobs":{entries}'

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        """Return the messages; the prompt's log-probabilities stand beside them, as in vLLM."""
        [output] = outputs
        answer: dict[str, Any] = {"choices": [self._choice(part) for part in output.outputs]}
        if output.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(self._tokenizer, output.prompt_logprobs)
        return answer

    def _choice(self, part: CompletionOutput) -> dict[str, Any]:
        logprobs = chat_logprobs(self._tokenizer, part.logprobs) if self._with_logprobs else None
        return {
            "index": part.index,
            "message": {"role": "assistant", "content": part.text, "refusal": None},
            "logprobs": logprobs,
            "finish_reason": part.finish_reason,
            "stop_reason": part.stop_reason,
        }
