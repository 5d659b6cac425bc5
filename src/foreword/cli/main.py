"""The `foreword` command. One file for each subcommand; each imports what it needs when it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from foreword import __version__
from foreword.errors import ForewordError

# Where each subcommand is: a function, or a `Typer` with subcommands of its own.
_COMMANDS = {
    "run": "foreword.cli.run:run",
    "chat": "foreword.cli.chat:chat",
    "serve": "foreword.cli.serve:serve",
    "pull": "foreword.cli.models:pull",
    "models": "foreword.cli.models:list_models",
    "env": "foreword.cli.env:env",
    "eval": "foreword.cli.eval:evaluate",
    "explain": "foreword.cli.explain:explain",
    "bench": "foreword.cli.bench:app",
    "ab": "foreword.cli.ab:ab",
    "simulate": "foreword.cli.simulate:simulate",
}


class _Subcommands(Mapping[str, Any]):
    """Imports a subcommand when it is asked for: none waits for the options of the others."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = _COMMANDS[name].partition(":")
        found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(add_completion=False)
            found.command()(function)
        command = get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": _Subcommands()})


app = typer.Typer(
    cls=_Group,
    help="An LLM inference engine and server built around one number: time to first token.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
