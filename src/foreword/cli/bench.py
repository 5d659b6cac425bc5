"""`foreword bench`: measure a model on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.options import takes
from foreword.config.engine import EngineOptions

app = typer.Typer(no_args_is_help=True, help="Measure a model on this machine.")


@app.callback()
def _bench() -> None:
    """Keep `latency` a subcommand while it is the only one."""


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(length) for length in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of lengths such as 128,512") from None


@app.command()
@takes(EngineOptions, panel="Engine")
def latency(
    engine: EngineOptions,
    prompt_lengths: Annotated[
        str, typer.Option(help="Tokens of the prompts, with commas between.")
    ] = "32,128,512",
    output_lengths: Annotated[
        str, typer.Option(help="Tokens to generate, with commas between.")
    ] = "64",
    repeats: Annotated[int, typer.Option(help="Measurements of each case.")] = 5,
    warmup: Annotated[int, typer.Option(help="Rounds before them, thrown away.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
) -> None:
    """Measure TTFT, TPOT and token rates by prompt length and output length."""
    from foreword.bench.latency import LatencySettings, run_latency

    settings = LatencySettings(
        prompt_lengths=_lengths(prompt_lengths),
        output_lengths=_lengths(output_lengths),
        repeats=repeats,
        warmup=warmup,
    )
    import json

    from rich.console import Console
    from rich.progress import Progress

    from foreword.bench.table import latency_table
    from foreword.cli.loading import load_engine
    from foreword.engine.llm import LLM

    llm = LLM.from_engine(load_engine(engine))
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("measuring", total=None)
        report = run_latency(
            llm,
            settings,
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    Console().print(latency_table(report))
