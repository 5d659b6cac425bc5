"""What every endpoint shares."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from foreword.config.server import ServerConfig
from foreword.core.params import SamplingParams
from foreword.core.request import Urgency
from foreword.engine.async_engine import AsyncEngine
from foreword.metrics.history import RequestHistory
from foreword.metrics.observer import RequestObserver
from foreword.metrics.record import RequestRecord
from foreword.server.asgi import lifetime_of, read_body
from foreword.server.errors import ApiError
from foreword.server.generation import Generation
from foreword.server.schema import parse_json


@dataclass(frozen=True)
class Service:
    """The engine behind the endpoints, and the names it goes by.

    Attributes:
        history: the latest requests.
        observers: whoever is to be told of requests.
        model_names: names that requests may give in ``model``; responses carry the first.
        created: Unix time of the start.
        warmed: the prompts of `ServerConfig.warm_prompts` are computed.
    """

    engine: AsyncEngine
    config: ServerConfig
    history: RequestHistory
    observers: Sequence[RequestObserver]
    model_names: Sequence[str]
    created: int = field(default_factory=lambda: int(time.time()))
    warmed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model_name(self) -> str:
        """The name that responses carry."""
        return self.model_names[0]

    def check_model(self, name: str | None) -> None:
        """Raise a 404 where a request asks for another model; none means this one."""
        if name is not None and name not in self.model_names:
            raise ApiError(
                404,
                f"the model {name!r} is not served here; there is {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    async def json(self, request: Request) -> Any:
        """Read and decode a request's body.

        Raises:
            ApiError: it is too large, or not JSON.
        """
        return parse_json(await read_body(request, self.config.max_body_bytes))

    def generation(
        self,
        request: Request,
        prefix: str,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        urgency: Urgency,
        param: str,
        stream: bool,
        cache_salt: str | None,
    ) -> Generation:
        """Return the work that a request asks for, not yet begun.

        Args:
            prefix: how OpenAI begins the ids of such answers.
            param: the parameter that holds the prompt.
            cache_salt: as it was asked for.
        """
        life = lifetime_of(request)
        record = RequestRecord(
            id=f"{prefix}-{os.urandom(16).hex()}",
            endpoint=request.scope["path"],
            model=self.model_name,
            stream=stream,
            completions=len(prompts) * params.n,
            lifetime=life,
            received_unix_s=time.time() - (time.monotonic() - life.received_s),
            traceparent=request.headers.get("traceparent"),
        )
        return Generation(
            self.engine,
            self.history,
            self.observers,
            record,
            prompts,
            params,
            urgency=urgency,
            param=param,
            cache_salt=self.cache_salt(request, cache_salt),
            tenant=self.tenant(request),
        )

    def tenant(self, request: Request) -> str:
        """Who asks: the digest of the API key, where there are keys."""
        key: bytes | None = request.scope["api_key"]
        return key.hex() if self.config.api_key and key else ""

    def cache_salt(self, request: Request, asked: str | None) -> str:
        """Who shares computed blocks with a request: those with the same salt."""
        if self.config.cache_isolation == "none":
            return asked or ""
        key: bytes = request.scope["api_key"]
        return f"{key.hex()}:{asked or ''}"

    def envelope(self, request_id: str, object_name: str) -> dict[str, Any]:
        """Return the members that every answer and chunk begins with."""
        return {
            "id": request_id,
            "object": object_name,
            "created": int(time.time()),
            "model": self.model_name,
        }


def takes(model: type[BaseModel], *others: type[BaseModel]) -> dict[str, Any]:
    """Return the part of an operation's OpenAPI description that tells of its JSON body."""
    refs = [{"$ref": f"#/components/schemas/{each.__name__}"} for each in (model, *others)]
    schema = {"anyOf": refs} if others else refs[0]
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
