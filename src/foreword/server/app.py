"""The HTTP application: OpenAI's endpoints over an `AsyncEngine`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from foreword import __version__
from foreword.config.server import ServerConfig
from foreword.engine.async_engine import AsyncEngine
from foreword.errors import ForewordError, TemplateError
from foreword.metrics.history import RequestHistory
from foreword.server import cache, chat, completions, docs, operations, requests, steps, tokens
from foreword.server.asgi import ClientLeftError, Entry, HeldBodies
from foreword.server.errors import ApiError, to_api_error
from foreword.server.monitoring import Monitoring
from foreword.server.service import Service
from foreword.server.warm import Bodies, read_prompts, warm_all

logger = logging.getLogger(__name__)

_CLIENT_CLOSED_REQUEST = 499  # nginx's code; nobody reads it


def create_app(engine: AsyncEngine, config: ServerConfig) -> FastAPI:
    """Return the ASGI application. Its lifespan starts the engine and stops it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        with suppress(TemplateError):  # a model without a template serves completions
            # Importing and compiling what templates need takes 0.1 s: not the first client's.
            await engine.encode_chat([{"role": "user", "content": ""}])
        await engine.start()
        warming = asyncio.ensure_future(_warm(service, prompts))
        yield
        warming.cancel()
        await engine.shutdown()
        await monitoring.shutdown()

    names = config.served_model_name or [engine.model_name]
    monitoring = Monitoring(engine, config, names[0])
    history = RequestHistory(config.request_history)
    service = Service(engine, config, history, monitoring.observers, names)
    prompts = read_prompts(config.warm_prompts) if config.warm_prompts else []
    app = FastAPI(
        title="foreword",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # foreword has its own
    )
    app.add_middleware(
        Entry,
        api_keys=config.api_key or [],
        bodies=HeldBodies(config.held_body_bytes),
        on_error=monitoring.error,
    )
    _add_error_handlers(app, monitoring.error)
    for module in (chat, completions, tokens, cache, requests, steps, operations):
        module.add_routes(app, service)
    monitoring.add_routes(app, service)
    docs.add_routes(app)
    return app


async def _warm(service: Service, prompts: Bodies) -> None:
    await warm_all(service, prompts)
    service.warmed.set()


def _add_error_handlers(app: FastAPI, count: Callable[[int], None]) -> None:
    async def tell(request: Request, error: Exception) -> Response:
        del request
        shown = to_api_error(error)
        count(shown.status)
        if shown.status == 500 and isinstance(error, ForewordError):  # the others uvicorn logs
            logger.error("a request failed", exc_info=error)
        return JSONResponse(shown.body(), status_code=shown.status, headers=shown.headers)

    async def tell_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        shown = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
        response = await tell(request, shown)
        response.headers.update(error.headers or {})
        return response

    async def nobody_left(request: Request, error: Exception) -> Response:
        del request, error
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(ForewordError, tell)
    app.add_exception_handler(Exception, tell)
    app.add_exception_handler(HTTPException, tell_http)
    app.add_exception_handler(ClientLeftError, nobody_left)
