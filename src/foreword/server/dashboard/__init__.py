"""``/dashboard``: a page about this server, from this server alone."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PATH = "/dashboard"
_FILES = Path(__file__).parent / "static"

# Nothing from elsewhere, no script but the files here: what a prompt says cannot run.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asks each time, and is told "not modified"
}


class _Pages(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def add_routes(app: FastAPI) -> None:
    """Add the page and its parts to ``app``; none of them needs the API key or holds data."""
    app.mount(PATH, _Pages(directory=_FILES, html=True), name="dashboard")
