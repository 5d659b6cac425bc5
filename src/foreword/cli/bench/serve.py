"""`foreword bench serve`: load on a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from foreword.bench.load.report import LoadReport, LoadSettings
    from foreword.bench.load.target import Target
    from foreword.bench.load.workloads import Recipe


def serve(
    url: Annotated[str, typer.Option(help="A server that speaks OpenAI's API.")] = (
        "http://127.0.0.1:8000"
    ),
    model: Annotated[
        str | None, typer.Option(help="Name to ask for. Default: the first that it lists.")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="chat or completions.")] = "chat",
    api_key: Annotated[
        str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.")
    ] = None,
    workload: Annotated[
        str,
        typer.Option(help="fixed, chat, rag, code, mixed, burst, urgent, or trace:FILE."),
    ] = "fixed",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the workload."),
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Requests to measure.")] = 100,
    warmup: Annotated[int, typer.Option(help="Requests before them, thrown away.")] = 2,
    seed: Annotated[int, typer.Option(help="The same seed makes the same requests.")] = 0,
    request_rate: Annotated[
        float | None,
        typer.Option(help="Requests a second, sent when due. Default: as soon as there is room."),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(help="Shape of the gaps: 1 is Poisson, below comes in clusters, inf is even."),
    ] = 1.0,
    max_concurrency: Annotated[
        int | None,
        typer.Option(help="Requests at once. Default: no limit with a rate, else 1."),
    ] = None,
    timeout_s: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 300.0,
    slo_ttft_ms: Annotated[
        float | None, typer.Option(help="What goodput asks of TTFT, from when a request was due.")
    ] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="What goodput asks of TPOT.")] = None,
    ignore_eos: Annotated[
        bool, typer.Option(help="Have exactly as many tokens as planned, if the server can.")
    ] = True,
    server_timing: Annotated[
        bool, typer.Option(help="Compare with the server's account of each request, if it has one.")
    ] = True,
    extra_body: Annotated[
        str | None, typer.Option(metavar="JSON", help="More members of each request's body.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option(help="First measure the client itself, on a mock server.")
    ] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots (needs the extra bench).")
    ] = None,
) -> None:
    """Load a server and measure TTFT, TPOT, ITL, end-to-end latency and goodput.

    Ctrl-C ends the run and keeps what was measured; docs/measure.md explains workloads and numbers.
    """
    from foreword.bench.load.report import LoadSettings
    from foreword.bench.load.summary import Slo
    from foreword.bench.load.target import Target
    from foreword.cli.bench.recipes import make_recipe

    if html_file is not None:
        from foreword.bench.html import import_plotly

        import_plotly()  # rather now than after the run
    slo = Slo.stated(slo_ttft_ms, slo_tpot_ms)
    target = Target(
        url=url,
        model=model,
        endpoint=endpoint,
        api_key=api_key,
        extra=_members(extra_body),
    )
    settings = LoadSettings(
        num_prompts=num_prompts,
        warmup=warmup,
        seed=seed,
        request_rate=request_rate,
        burstiness=burstiness,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        calibrate=calibrate,
        ask_for=tuple(
            name
            for name, wanted in (("ignore_eos", ignore_eos), ("timing", server_timing))
            if wanted
        ),
        slo=slo,
    )
    report = _run(target, make_recipe(workload, set_ or ()), settings)
    _show(report, json_file, html_file)
    if report.result.partial:
        raise typer.Exit(130)
    if not report.summary.good:
        raise typer.Exit(1)


def _members(text: str | None) -> dict[str, Any]:
    import json

    try:
        members = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"--extra-body is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise typer.BadParameter("--extra-body is no JSON object")
    return members


def _run(target: Target, recipe: Recipe, settings: LoadSettings) -> LoadReport:
    """Run under uvloop, with a progress bar; the first Ctrl-C ends the run and keeps the rest."""
    import asyncio
    import signal

    import uvloop
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    from foreword.bench.load.report import run_load_bench

    async def run() -> LoadReport:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            stop.set()
            loop.remove_signal_handler(signal.SIGINT)  # a second one ends at once

        loop.add_signal_handler(signal.SIGINT, end)
        bar = bars.add_task("preparing", total=None)
        return await run_load_bench(
            target,
            recipe,
            settings,
            on_record=lambda _, total: bars.update(
                bar, description="measuring", total=total, advance=1
            ),
            stop=stop,
        )

    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        report: LoadReport = uvloop.run(run())
    return report


def _show(report: LoadReport, json_file: Path | None, html_file: Path | None) -> None:
    import json

    from rich.console import Console

    from foreword.bench.load.table import load_tables

    Console().print(*load_tables(report), sep="\n\n")
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=2) + "\n")
    if html_file is not None:
        from foreword.bench.load.page import write_load_page

        write_load_page(report, html_file)
