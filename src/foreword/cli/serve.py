"""`foreword serve`: the OpenAI-compatible server."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from foreword.cli.options import takes
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import DEFAULT_MODEL, EngineOptions
from foreword.config.server import ServerConfig


@takes(AdmissionConfig, panel="Admission")
@takes(ServerConfig, panel="Server")
@takes(EngineOptions, panel="Engine", skip=("model",))
def serve(
    engine: EngineOptions,
    server: ServerConfig,
    admission: AdmissionConfig,
    model: Annotated[
        str, typer.Argument(help="A name that `foreword models` lists, or a .gguf file.")
    ] = DEFAULT_MODEL,
) -> None:
    """Serve a model over HTTP, as OpenAI's API."""
    from foreword.cli.loading import load_engine
    from foreword.engine.async_engine import AsyncEngine
    from foreword.server.serve import serve as run_server

    loaded = load_engine(replace(engine, model=model))
    for choice in loaded.config.choices:
        typer.echo(f"  {choice.name:<24} {choice.value!s:<12} {choice.why}", err=True)
    loaded.warm_up()
    run_server(AsyncEngine(loaded, admission), server)
