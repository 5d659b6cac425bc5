"""`foreword bench`: measure models, kernels and servers. One file for each subcommand."""

from __future__ import annotations

import typer

from foreword.cli.bench import kernels, latency, peers, serve

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure models, kernels and servers."
)
app.command()(latency.latency)
app.command()(kernels.kernels)
app.command()(peers.peers)
app.command()(serve.serve)
