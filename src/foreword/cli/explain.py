"""`foreword explain`: where one request's time to first token went."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

_LOOKED_AT = 1000


def explain(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="[ID]",
            help="The `id` of an answer; `last`; or `slowest`, of the latest 1000 requests.",
        ),
    ] = "slowest",
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, typer.Option(help="Its key.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="As the server tells it.")] = False,
) -> None:
    """Show where a request's time to first token went, and who was in its way.

    Asks a running `foreword serve`, which remembers its latest requests.
    """
    from rich.console import Console

    from foreword.cli.remote import Remote
    from foreword.cli.waterfall import show_waterfall

    server = Remote(url, api_key)
    if request_id in ("last", "slowest"):
        request_id = _choose(server, request_id)
    found = server.get(f"/v1/requests/{quote(request_id, safe='')}/waterfall")
    if json_:
        import json

        typer.echo(json.dumps(found, indent=2))
    else:
        show_waterfall(found, Console(highlight=False))


def _choose(server: Any, which: str) -> str:
    """The id of the last request that has content, or of the one that it took the longest."""
    from foreword.errors import ServerError

    listed = server.get(f"/v1/requests?limit={_LOOKED_AT}")["data"]
    answered = [found for found in listed if found["ttft_ms"] is not None]
    if not answered:
        raise ServerError("the server has not answered a request yet: there is nothing to explain")
    slowest = max(answered, key=lambda found: float(found["ttft_ms"]))
    return str((answered[0] if which == "last" else slowest)["id"])
