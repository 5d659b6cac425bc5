"""`foreword pull` and `foreword models`: what can be had, and what is here."""

from __future__ import annotations

from typing import Annotated

import typer


def pull(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Names from `foreword models`, or hf:org/repo/file.gguf."
        ),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the digest of a file that is here already.")
    ] = False,
) -> None:
    """Fetch models into the cache folder; those that are here already cost nothing."""
    from foreword.cli.loading import pull_with_progress

    for model in models:
        typer.echo(f"{model}: {pull_with_progress(model, verify=verify)}")


def list_models() -> None:
    """List the models that can be had by name, and those that are here."""
    from rich.console import Console
    from rich.table import Table

    from foreword.weights import registry

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NAME", "SIZE", "LICENCE"):
        table.add_column(heading, no_wrap=True)
    table.add_column("HERE", overflow="fold")  # a path that is cut short is of no use
    for entry in registry.list_models():
        here = str(entry.path) if entry.path is not None else f"no: foreword pull {entry.name}"
        table.add_row(
            " or ".join((entry.name, *entry.aliases)),
            f"{entry.size_bytes / 1e6:.0f} MB",
            entry.license,
            here,
        )
    Console().print(table)
