"""``POST /tokenize`` and ``POST /detokenize``, as in vLLM."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from foreword.errors import InvalidRequestError
from foreword.server.schema import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeRequest,
    parse,
)
from foreword.server.service import Service, takes
from foreword.text.tokenizer import Tokenizer


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints to ``app``."""

    @app.post(
        "/tokenize", openapi_extra=takes(TokenizeRequest, TokenizeChatRequest), tags=["tokens"]
    )
    async def tokenize(request: Request) -> JSONResponse:
        """Return the token ids of a text, or of a conversation as the model sees it."""
        data = await service.json(request)
        if isinstance(data, dict) and "messages" in data:
            chat = parse(TokenizeChatRequest, data)
            service.check_model(chat.model)
            ids = await service.engine.encode_chat(
                chat.for_template(),
                add_generation_prompt=chat.wants_answer,
                cache_salt=service.cache_salt(request, None),
            )
            return await _tokens(service, ids, with_text=bool(chat.return_token_strs))
        body = parse(TokenizeRequest, data)
        service.check_model(body.model)
        # None lets the tokenizer decide, as it does for prompts.
        add_bos = False if body.add_special_tokens is False else None
        ids = await service.engine.encode(
            body.prompt, add_bos=add_bos, cache_salt=service.cache_salt(request, None)
        )
        return await _tokens(service, ids, with_text=bool(body.return_token_strs))

    @app.post("/detokenize", openapi_extra=takes(DetokenizeRequest), tags=["tokens"])
    async def detokenize(request: Request) -> JSONResponse:
        """Return the text of token ids, special tokens included."""
        body = parse(DetokenizeRequest, await service.json(request))
        service.check_model(body.model)
        text = await asyncio.to_thread(_text, service.engine.tokenizer, body.tokens)
        return JSONResponse({"prompt": text})


def _text(tokenizer: Tokenizer, ids: list[int]) -> str:
    for token_id in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= token_id < tokenizer.vocab_size:
            raise InvalidRequestError(
                f"token id {token_id} is outside the vocabulary of {tokenizer.vocab_size}",
                param="tokens",
            )
    return tokenizer.decode(ids, skip_special=False)


async def _tokens(service: Service, ids: list[int], *, with_text: bool) -> JSONResponse:
    answer: dict[str, Any] = {
        "count": len(ids),
        "max_model_len": service.engine.max_model_len,
        "tokens": ids,
    }
    if with_text:
        token_text = service.engine.tokenizer.token_text
        answer["token_strs"] = await asyncio.to_thread(lambda: [token_text(each) for each in ids])
    return JSONResponse(answer)
