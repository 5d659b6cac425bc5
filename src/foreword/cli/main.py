"""The `foreword` command. One file for each subcommand; each imports what it needs when it runs."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from foreword import __version__
from foreword.cli import bench, chat, env, eval, models, run, serve
from foreword.errors import ForewordError

app = typer.Typer(
    help="An LLM inference engine and server built around one number: time to first token.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command()(chat.chat)
app.command()(serve.serve)
app.command()(models.pull)
app.command(name="models")(models.list_models)
app.command()(env.env)
app.command(name="eval")(eval.evaluate)
app.add_typer(bench.app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"foreword {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    del version  # its callback has done the work


def main() -> None:
    """Run the command line; errors that foreword raises on purpose are told in one line."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal cannot show becomes a "?"
            stream.reconfigure(errors="replace")
    try:
        app()
    except ForewordError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
