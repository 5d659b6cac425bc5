"""The API's description for people, without anything from another server."""

from __future__ import annotations

import html
import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse

from foreword.server import schema

_BODIES = (
    schema.ChatRequest,
    schema.CompletionRequest,
    schema.DetokenizeRequest,
    schema.TokenizeChatRequest,
    schema.WarmRequest,
    schema.WarmChatRequest,
    schema.TokenizeRequest,
)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>foreword: HTTP API</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code {{ font-size: 95% }} summary {{ cursor: pointer }} pre {{ overflow-x: auto }}
</style>
<h1>foreword: HTTP API</h1>
<p>Version {version}. For programs: <a href="openapi.json">openapi.json</a>.</p>
{operations}
</html>
"""


def add_routes(app: FastAPI) -> None:
    """Add ``/docs``, and the bodies' schemas to ``/openapi.json``.

    Bodies are not declared as FastAPI parameters (they are checked without its machinery, which
    costs time), so their schemas are put in here.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, bodies = models_json_schema(
                [(body, "validation") for body in _BODIES],
                ref_template="#/components/schemas/{model}",
            )
            document.setdefault("components", {}).setdefault("schemas", {}).update(bodies["$defs"])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()))


def _page(document: dict[str, Any]) -> str:
    operations = [
        _operation(method.upper(), path, operation, document)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return _PAGE.format(version=document["info"]["version"], operations="\n".join(operations))


def _operation(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    text = html.escape(operation.get("description", ""))
    lines = [f"<h2><code>{method} {html.escape(path)}</code></h2>", f"<p>{text}</p>"]
    body = operation.get("requestBody")
    if body is not None:
        wanted = body["content"]["application/json"]["schema"]
        for ref in wanted.get("anyOf", [wanted]):
            name = ref["$ref"].rpartition("/")[2]
            shown = json.dumps(document["components"]["schemas"][name], indent=2)
            lines.append(
                f"<details><summary>{name}</summary><pre>{html.escape(shown)}</pre></details>"
            )
    return "\n".join(lines)
