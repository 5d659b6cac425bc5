"""`foreword bench`: measure a model on this machine. One file for each subcommand."""

from __future__ import annotations

import typer

from foreword.cli.bench import kernels, latency, peers

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure a model on this machine."
)
app.command()(latency.latency)
app.command()(kernels.kernels)
app.command()(peers.peers)
