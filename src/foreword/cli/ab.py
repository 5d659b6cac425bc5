"""`foreword ab`: which of two configurations is faster, by experiment."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foreword.bench.ab.settings import AbSettings
from foreword.cli.options import takes
from foreword.config.engine import EngineOptions
from foreword.errors import ConfigError

if TYPE_CHECKING:
    from foreword.bench.ab.arms import Arm
    from foreword.bench.ab.blocks import Side


@takes(AbSettings, panel="Design")
def ab(
    settings: AbSettings,
    a: Annotated[str, typer.Option("--a", metavar="SIDE", help="What b is compared with.")],
    b: Annotated[str, typer.Option("--b", metavar="SIDE", help="What is judged.")],
    both: Annotated[
        str, typer.Option(metavar="OPTIONS", help="Options of `foreword serve` for both sides.")
    ] = "",
    workload: Annotated[
        str, typer.Option(help="fixed, chat, rag, code, mixed, burst, urgent, or trace:FILE.")
    ] = "fixed",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the workload."),
    ] = None,
    endpoint: Annotated[str, typer.Option(help="chat or completions.")] = "chat",
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests per second, by chance. Default: as soon as there is room."),
    ] = None,
    burstiness: Annotated[float, typer.Option(help="Of --request-rate: 1 is Poisson.")] = 1.0,
    max_concurrency: Annotated[
        int | None,
        typer.Option(help="Requests at once. Default: 1, or those that are due."),
    ] = None,
    slo_ttft_ms: Annotated[float | None, typer.Option(help="For goodput.")] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="For goodput.")] = None,
    quality: Annotated[
        bool, typer.Option(help="Compare predictions where the sides compute differently.")
    ] = True,
    api_key: Annotated[str | None, typer.Option(help="For both servers.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots to this file.")
    ] = None,
) -> None:
    """Compare two configurations under the same load; say better, worse, or not shown.

    A side is options of `foreword serve` (its model may be among them), the URL of a running
    server, or a command with {port} in it that starts one. Both run at once; blocks of the same
    requests go to one and the other, in an order that is drawn.

    Exit status: 0 better, or not worse by --non-inferior; 3 worse; 4 not shown; 5 faster, but not
    the same quality; 130 interrupted; 1 and 2 errors.
    """
    import json

    from rich.console import Console
    from rich.progress import Progress

    from foreword.bench.ab.session import LoadShape, run_ab
    from foreword.bench.ab.table import ab_tables
    from foreword.bench.html import import_plotly
    from foreword.bench.load.summary import Slo
    from foreword.cli.bench.recipes import make_recipe

    if html_file is not None:
        import_plotly()
    arms: dict[Side, Arm] = {"a": _arm("a", a, both), "b": _arm("b", b, both)}
    load = LoadShape(
        recipe=make_recipe(workload, set_ or ()),
        endpoint=endpoint,
        request_rate=request_rate,
        burstiness=burstiness,
        max_concurrency=max_concurrency,
        slo=Slo.stated(slo_ttft_ms, slo_tpot_ms),
    )
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)
        report = run_ab(
            arms,
            load,
            settings,
            api_key=api_key,
            compare_answers=quality,
            progress=lambda what, done, total: bars.update(
                bar, description=what, completed=done, total=total
            ),
        )
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1) + "\n")
    if html_file is not None:
        from foreword.bench.ab.page import write_report

        write_report(html_file, report)
    Console().print(*ab_tables(report), sep="\n")
    raise typer.Exit(report.exit_code)


def _arm(side: Side, text: str, both: str) -> Arm:
    """Read a side; one that is options of ours names a model that is here, or is fetched now."""
    from foreword.bench.ab.arms import Arm, split
    from foreword.cli.loading import ensure_model

    other = Arm.parse(side, text)
    if other is not None:
        return other
    words = split(side, f"{both} {text}")
    engine = serve_options(side, words)
    ensure_model(engine.model)
    return Arm.of_ours(text, words, engine)


def serve_options(side: Side, words: list[str]) -> EngineOptions:
    """Read words as `foreword serve` would: a mistake is told before anything is started.

    Raises:
        ConfigError: ``--port`` is among them, which is ours to give.
        UsageError (of typer): they are not options of `foreword serve`.
    """
    from typer.main import get_command

    from foreword.cli.serve import serve

    app = typer.Typer(add_completion=False)
    app.command()(serve)
    context = get_command(app).make_context(f"foreword serve (side {side})", list(words))
    source = context.get_parameter_source("port")
    if source is not None and source.name == "COMMANDLINE":
        raise ConfigError(side, "--port is not to be given: each side gets a free one")
    names = {field.name for field in fields(EngineOptions)}
    return EngineOptions(**{name: context.params[name] for name in names})
