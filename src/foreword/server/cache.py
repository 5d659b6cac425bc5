"""The prefix cache's endpoints: warm, pin, look, clear."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from foreword.core.params import SamplingParams
from foreword.core.request import Urgency
from foreword.engine.cache_control import CacheState
from foreword.server.errors import ApiError
from foreword.server.schema import WarmChatRequest, WarmRequest, parse
from foreword.server.service import Service, takes

_ONLY_THE_PROMPT = SamplingParams(max_tokens=0)
_PIN_S = 3600.0  # where a pin does not say for how long

_TAKES = takes(WarmRequest, WarmChatRequest)


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints to ``app``."""

    @app.get("/v1/cache", tags=["prefix cache"])
    async def look() -> JSONResponse:
        """Return what the prefix cache holds, and its pins."""
        state = await service.engine.between_steps(lambda engine: engine.cache.state())
        return JSONResponse(_state_json(service, state))

    @app.delete("/v1/cache", tags=["prefix cache"])
    async def clear() -> JSONResponse:
        """Forget everything that nobody holds or has pinned, in all tiers."""
        cleared = await service.engine.between_steps(lambda engine: engine.cache.clear())
        if cleared.tiers is not None:
            try:
                await asyncio.wrap_future(cleared.tiers)
            except OSError as error:
                raise ApiError(500, f"the pool is cleared, but a tier is not: {error}") from error
        return JSONResponse({"freed_blocks": cleared.blocks})

    @app.post("/v1/cache/warm", openapi_extra=_TAKES, tags=["prefix cache"])
    async def warm(request: Request) -> JSONResponse:
        """Compute a prompt, so that what begins with it is served from the cache."""
        body = parse_warm(await service.json(request))
        if body.ttl_s is not None:
            raise ApiError(400, "ttl_s is for /v1/cache/pin", param="ttl_s")
        salt = service.cache_salt(request, body.cache_salt)
        return JSONResponse(await warm_up(service, body, salt))

    @app.post("/v1/cache/pin", openapi_extra=_TAKES, tags=["prefix cache"])
    async def pin(request: Request) -> JSONResponse:
        """Compute a prompt, and keep its whole blocks for ``ttl_s`` seconds."""
        body = parse_warm(await service.json(request))
        salt = service.cache_salt(request, body.cache_salt)
        return JSONResponse(await warm_up(service, body, salt, ttl_s=body.ttl_s or _PIN_S))

    @app.delete("/v1/cache/pin/{name}", tags=["prefix cache"])
    async def unpin(name: str) -> JSONResponse:
        """Undo a pin."""
        if not await service.engine.between_steps(lambda engine: engine.cache.unpin(name)):
            raise ApiError(404, f"there is no pin {name[:100]!r}", code="pin_not_found")
        return JSONResponse({"id": name, "deleted": True})


def parse_warm(data: Any) -> WarmRequest | WarmChatRequest:
    """Check a body of the endpoints that compute a prompt."""
    is_chat = isinstance(data, dict) and "messages" in data
    return parse(WarmChatRequest, data) if is_chat else parse(WarmRequest, data)


async def warm_up(
    service: Service,
    body: WarmRequest | WarmChatRequest,
    cache_salt: str,
    *,
    ttl_s: float | None = None,
) -> dict[str, Any]:
    """Compute a prompt, and pin it where ``ttl_s`` says for how long; return what was done."""
    service.check_model(body.model)
    tokens = await _token_ids(service, body, cache_salt)
    cached = 0
    urgency = Urgency(priority=body.priority or 0)
    async for delta in service.engine.generate(
        tokens, _ONLY_THE_PROMPT, cache_salt=cache_salt, urgency=urgency
    ):
        cached = delta.num_cached_tokens
    done: dict[str, Any] = {"prompt_tokens": len(tokens), "cached_tokens": cached}
    if ttl_s is None:
        return {"object": "cache.warm", **done}
    name, pin = await service.engine.between_steps(
        lambda engine: engine.cache.pin(tokens, cache_salt, engine.clock() + ttl_s)
    )
    return {"object": "cache.pin", "id": name, **done, "pinned_tokens": pin.num_tokens}


async def _token_ids(
    service: Service, body: WarmRequest | WarmChatRequest, cache_salt: str
) -> list[int]:
    if isinstance(body, WarmChatRequest):
        return await service.engine.encode_chat(
            body.for_template(),
            add_generation_prompt=bool(body.add_generation_prompt),
            cache_salt=cache_salt,
        )
    if isinstance(body.prompt, str):
        return await service.engine.encode(body.prompt, cache_salt=cache_salt)
    return body.prompt


def _state_json(service: Service, state: CacheState) -> dict[str, Any]:
    engine, blocks = service.engine, state.blocks
    return {
        "object": "cache",
        "enabled": engine.config.cache.enable_prefix_caching,
        "block_size": engine.config.cache.block_size,
        "blocks": {
            "total": blocks.total,
            "free": blocks.free,
            "cached": blocks.cached,
            "referenced": blocks.referenced,
            "pinned": state.pinned,
        },
        "tiers": [{"name": name, "bytes": size} for name, size in state.tier_bytes.items()],
        "pins": [{"id": name, "tokens": pin.num_tokens} for name, pin in state.pins.items()],
    }
