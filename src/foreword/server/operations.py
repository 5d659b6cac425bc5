"""What operators and clients ask a server about itself."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse

from foreword import __version__
from foreword.server.service import Service


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints to ``app``."""
    _add_probes(app, service)
    _add_models(app, service)

    @app.get("/version", tags=["operations"])
    async def version() -> JSONResponse:
        """Return foreword's version."""
        return JSONResponse({"version": __version__})


def _add_probes(app: FastAPI, service: Service) -> None:
    engine = service.engine

    @app.get("/livez", tags=["operations"])
    async def livez() -> JSONResponse:
        """Answer 200 while the engine makes progress, 503 when it should be restarted."""
        return _probe(engine.healthy)

    @app.get("/health", tags=["operations"])
    async def health() -> JSONResponse:
        """Answer as /livez, under the name that vLLM's users know."""
        return _probe(engine.healthy)

    @app.get("/readyz", tags=["operations"])
    async def readyz() -> JSONResponse:
        """Answer 200 while new requests may queue and warm prompts are computed, else 503."""
        return _probe(engine.accepting and engine.has_room and service.warmed.is_set())


def _probe(ok: bool) -> JSONResponse:
    return JSONResponse({"ok": ok}, status_code=200 if ok else 503)


def _add_models(app: FastAPI, service: Service) -> None:
    def describe(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": service.created,
            "owned_by": "foreword",
            "root": service.engine.model_name,
            "max_model_len": service.engine.max_model_len,
        }

    @app.get("/v1/models", tags=["OpenAI"])
    async def models() -> JSONResponse:
        """List the model under each of its names."""
        return JSONResponse(
            {"object": "list", "data": [describe(name) for name in service.model_names]}
        )

    @app.get("/v1/models/{name:path}", tags=["OpenAI"])
    async def model(name: str) -> JSONResponse:
        """Describe the model."""
        service.check_model(name)
        return JSONResponse(describe(name))
