"""`foreword bench kernels`: single kernels beside the machine's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.bench.lengths import parse_lengths


def kernels(
    isa: Annotated[str, typer.Option(help="A kernel table that `foreword env` lists.")] = "auto",
    only: Annotated[str | None, typer.Option(help="Kernels, with commas between.")] = None,
    tokens: Annotated[str, typer.Option(help="Tokens at once, with commas between.")] = (
        "1,4,16,128,512"
    ),
    budget_ms: Annotated[float, typer.Option(help="Time for each kernel and shape.")] = 30,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
) -> None:
    """Time single kernels on one thread, beside what the machine can do at most."""
    import json

    from rich.console import Console
    from rich.progress import Progress

    from foreword.bench.kernel_tasks import KERNELS
    from foreword.bench.kernels import run_kernels
    from foreword.bench.table import kernels_tables

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("timing", total=None)
        report = run_kernels(
            isa=isa,
            kernels=only.split(",") if only else KERNELS,
            tokens=parse_lengths(tokens),
            budget_s=budget_ms / 1e3,
            progress=lambda done: bars.update(bar, completed=done),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    Console().print(*kernels_tables(report), sep="\n\n")
