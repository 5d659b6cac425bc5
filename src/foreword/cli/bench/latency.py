"""`foreword bench latency`: TTFT and TPOT of one request at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.bench.lengths import parse_lengths
from foreword.cli.options import takes
from foreword.config.engine import EngineOptions


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
        prompt_lengths=parse_lengths(prompt_lengths),
        output_lengths=parse_lengths(output_lengths),
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
