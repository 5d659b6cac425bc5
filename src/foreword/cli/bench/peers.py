"""`foreword bench peers`: ours beside other engines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.bench.lengths import parse_lengths
from foreword.cli.options import takes
from foreword.config.engine import EngineOptions


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
    peer_model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="What an engine that cannot read GGUF loads instead: the same weights in its own "
            "format.",
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
        prompt_lengths=parse_lengths(prompt_lengths),
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
            _paths(peer or ()),
            settings,
            models=_paths(peer_model or ()),
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(comparison.to_json(), indent=2) + "\n")
    Console().print(peers_table(comparison))


def _paths(words: Iterable[str]) -> dict[str, Path]:
    paths = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals:
            raise typer.BadParameter(f"{word!r} is not NAME=PATH")
        paths[name] = Path(path)
    return paths
