"""`foreword bench`: measure a model on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.options import takes
from foreword.config.engine import EngineOptions

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Measure a model on this machine."
)


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


@app.command()
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
            tokens=_lengths(tokens),
            budget_s=budget_ms / 1e3,
            progress=lambda done: bars.update(bar, completed=done),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    Console().print(*kernels_tables(report), sep="\n\n")


@app.command()
@takes(EngineOptions, panel="Engine (ours)", skip=("max_model_len", "seed"))
def peers(
    engine: EngineOptions,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Where an engine is: the Python that has openvino or vllm, or the program "
            "llama-bench or llama-server. Default: this Python, and PATH.",
        ),
    ] = None,
    prompt_lengths: Annotated[
        str, typer.Option(help="Tokens of the prompts, with commas between.")
    ] = "128,512",
    output_tokens: Annotated[int, typer.Option(help="Tokens to generate.")] = 32,
    repeats: Annotated[int, typer.Option(help="Measurements of each case.")] = 3,
    warmup: Annotated[int, typer.Option(help="Rounds before them, thrown away.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
) -> None:
    """Run the same model and prompts on other engines and on ours, interleaved.

    Installs nothing: docs/peers.md says how to set the others up.
    """
    import json

    from rich.console import Console
    from rich.progress import Progress

    from foreword.bench.peers.compare import CompareSettings
    from foreword.bench.peers.run import run_peers
    from foreword.bench.table import peers_table
    from foreword.cli.loading import ensure_model

    settings = CompareSettings(
        prompt_lengths=_lengths(prompt_lengths),
        output_tokens=output_tokens,
        repeats=repeats,
        warmup=warmup,
    )
    path = ensure_model(engine.model)
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("measuring", total=None)
        comparison = run_peers(
            engine,
            path,
            _places(peer or ()),
            settings,
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(comparison.to_json(), indent=2) + "\n")
    Console().print(peers_table(comparison))


def _places(words: Iterable[str]) -> dict[str, Path]:
    places = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals:
            raise typer.BadParameter(f"{word!r} is not NAME=PATH")
        places[name] = Path(path)
    return places
