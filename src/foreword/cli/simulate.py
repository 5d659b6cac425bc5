"""`foreword simulate`: the real engine on hardware that one need not own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foreword.cli.options import takes
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import EngineOptions
from foreword.config.scheduler import SCHEDULING_POLICIES
from foreword.sim.cost import DEFAULT_PROFILE, CostProfile
from foreword.sim.settings import SimSettings

# What is the profile's to say, or of no account where nothing is computed or stored.
_NOT_SIMULATED = (
    "model",
    "kv_cache_memory_bytes",
    "kv_cache_dtype",
    "kv_memory_bytes",
    "kv_disk_path",
    "kv_disk_bytes",
    "num_threads",
    "compute",
    "isa",
    "seed",
)


@takes(AdmissionConfig, panel="Admission", skip=("queue_timeout_s",))
@takes(SimSettings, panel="Simulation")
@takes(EngineOptions, panel="Engine", skip=(*_NOT_SIMULATED, "scheduling_policy"))
def simulate(
    engine: EngineOptions,
    settings: SimSettings,
    admission: AdmissionConfig,
    workload: Annotated[
        str, typer.Option(help="fixed, chat, rag, code, mixed, burst, urgent, or trace:FILE.")
    ] = "chat",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the workload."),
    ] = None,
    scheduling_policy: Annotated[
        str,
        typer.Option(
            help=f"Which prompts go first: {', '.join(SCHEDULING_POLICIES)}. Several, with commas "
            "between, are compared."
        ),
    ] = "shortest",
    cost: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE|URL",
            help="The hardware: a profile that comes with foreword, a JSON file, or a running "
            "`foreword serve` whose latest steps are measured.",
        ),
    ] = DEFAULT_PROFILE,
    save_cost: Annotated[
        Path | None, typer.Option(help="Write the profile to this file, for --cost.")
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Spread of steps' durations, as 0.1. Default: the profile's."),
    ] = None,
    slo_ttft_ms: Annotated[
        float | None, typer.Option(help="What goodput asks of TTFT, from when a request was due.")
    ] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="What goodput asks of TPOT.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything to this file too.")
    ] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page with plots (needs the extra bench).")
    ] = None,
) -> None:
    """Run a workload in virtual time: real scheduler, KV cache and engine, simulated hardware.

    It tells what `foreword bench serve` would, in a fraction of the time.
    docs/simulate.md explains cost profiles, and how far to trust the results.
    """
    import json
    from dataclasses import replace

    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    from foreword.bench.html import import_plotly
    from foreword.bench.load.summary import Slo
    from foreword.cli.bench.recipes import make_recipe
    from foreword.sim.page import write_sim_page
    from foreword.sim.simulate import simulate as run
    from foreword.sim.table import sim_tables

    if html_file is not None:
        import_plotly()  # rather now than after the run
    profile = _profile(cost)
    if noise is not None:
        profile = replace(profile, noise=noise)
    if save_cost is not None:
        save_cost.write_text(json.dumps(profile.to_json(), indent=1) + "\n")
    slo = Slo.stated(slo_ttft_ms, slo_tpot_ms)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("simulating", total=None)
        report = run(
            make_recipe(workload, set_ or ()),
            settings,
            engine,
            profile,
            policies=scheduling_policy.split(","),
            admission=admission,
            slo=slo,
            on_record=lambda policy, _: bars.update(bar, description=policy, advance=1),
        )
    Console().print(*sim_tables(report), sep="\n\n")
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(), indent=1) + "\n")
    if html_file is not None:
        write_sim_page(report, html_file)
    if not any(policy.summary.good for policy in report.policies):
        raise typer.Exit(1)


def _profile(source: str) -> CostProfile:
    from foreword.sim.cost import read_profile

    if not source.startswith(("http://", "https://")):
        return read_profile(source)
    from foreword.cli.remote import Remote
    from foreword.sim.fit import fit_server

    return fit_server(source, Remote(source).get)
