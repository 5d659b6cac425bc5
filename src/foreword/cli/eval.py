"""`foreword eval`: what a configuration costs in quality."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foreword.cli.options import takes
from foreword.config.engine import EngineOptions

if TYPE_CHECKING:
    from foreword.engine.engine import Engine

_SKIP = (
    "block_size",
    "num_blocks",
    "kv_cache_memory_bytes",
    "enable_prefix_caching",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "seed",
)

_EXACT = {"compute": "float32", "kv_cache_dtype": "float32"}


@takes(EngineOptions, panel="Engine (both configurations)", skip=_SKIP)
def evaluate(
    engine: EngineOptions,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An engine option of the candidate."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="NAME=VALUE",
            help="One of the reference, which otherwise computes and keeps keys and values in "
            "float32.",
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A text file. Default: Python's language reference."
        ),
    ] = None,
    windows: Annotated[int, typer.Option(help="Pieces of the text, evenly spaced.")] = 4,
    window_tokens: Annotated[int, typer.Option(help="Tokens of each.")] = 1024,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
) -> None:
    """Compare a configuration's predictions with a reference's, token by token.

    Perplexity of both, KL divergence in nats per token, and how often both find the same token
    likeliest. Without options: what foreword's defaults cost.
    """
    import json

    from rich.console import Console
    from rich.progress import Progress

    from foreword.bench.eval import EvalSettings, Subject, run_eval
    from foreword.bench.prompts import corpus_text
    from foreword.bench.table import eval_table
    from foreword.cli.overrides import parse_overrides

    settings = EvalSettings(windows=windows, window_tokens=window_tokens)
    chosen = parse_overrides(set_ or (), EngineOptions)
    against = _EXACT | parse_overrides(reference or (), EngineOptions)
    words = corpus_text() if text is None else text.read_text(encoding="utf-8", errors="replace")
    first = _load(engine, against, settings.num_blocks)
    second = _load(engine, chosen, settings.num_blocks)
    pieces = settings.cut_text(first.tokenizer, words)
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("comparing", total=None)
        report = run_eval(
            Subject.of(first.backend, against),
            Subject.of(second.backend, chosen),
            pieces,
            settings,
            model=engine.model,
            text="pydoc_data.topics" if text is None else str(text),
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    Console().print(eval_table(report))


def _load(base: EngineOptions, overrides: dict[str, Any], num_blocks: int) -> Engine:
    """An engine whose pool holds one window; it never steps, its backend is driven by hand."""
    from foreword.cli.loading import load_engine

    return load_engine(replace(base, num_blocks=num_blocks, **overrides))
