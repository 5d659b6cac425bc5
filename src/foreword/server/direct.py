"""Routes that cost no more than they must."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foreword.server.service import takes

_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class DirectRoute(APIRoute):
    """A route like the others, documented too, whose endpoint turns a request into a response.

    FastAPI would look for parameters to check and for dependencies to close around it: in front of
    a forward pass, which leaves the caches cold, that is a tenth of a millisecond.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a method that the route does not have is refused as usual."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def post_directly(
    app: FastAPI, path: str, body: type[BaseModel]
) -> Callable[[_Endpoint], _Endpoint]:
    """Have ``app`` answer by the decorated function, which reads a ``body`` from the request."""

    def add(endpoint: _Endpoint) -> _Endpoint:
        app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            openapi_extra=takes(body),
            tags=["OpenAI"],
            route_class_override=DirectRoute,
        )
        return endpoint

    return add
