"""`foreword env`: what the machine is, and what foreword makes of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def env(
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    limits: Annotated[
        bool, typer.Option("--limits", help="Measure the machine's limits too; takes a second.")
    ] = False,
) -> None:
    """Show the machine, its instruction sets, the kernels chosen and why, and versions."""
    from foreword.bench.environment import describe_environment

    found = describe_environment()
    if limits:
        from foreword.bench.limits import measure_limits

        found["limits"] = measure_limits().to_json()
    if json_:
        import json

        typer.echo(json.dumps(found, indent=2))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    machine, cores, memory = found["machine"], found["cores"], found["memory"]
    usable = [name for name, usable in found["cpu_features"].items() if usable]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("foreword", f"{found['version']}, Python {machine['python']}, {machine['os']}")
    table.add_row("processor", machine["cpu"])
    table.add_row(
        "cores",
        f"{cores['used']} used; {cores['online']} online, {cores['affinity']} by affinity"
        + ("" if cores["used"] == cores["affinity"] else ", fewer by control group"),
    )
    table.add_row(
        "memory", f"{_gib(memory['free_bytes'])} free of {_gib(memory['total_bytes'])} GiB"
    )
    table.add_row("features", " ".join(usable) or "none that kernels ask for")
    for number, kernels in enumerate(found["kernels"]):
        table.add_row("" if number else "kernels", f"{kernels['isa']}: {kernels['why']}")
    for number, (name, version) in enumerate(found["packages"].items()):
        table.add_row("" if number else "packages", f"{name} {version or 'is not installed'}")
    if "limits" in found:
        for number, line in enumerate(_limit_lines(found["limits"])):
            table.add_row("" if number else "limits", line)
    Console().print(table)


def _limit_lines(limits: dict[str, Any]) -> list[str]:
    threads = limits["threads"]

    def line(what: str, unit: str, rate: dict[str, float]) -> str:
        one, all_ = (rate[key] / 1e9 for key in ("one_thread", "all_threads"))
        return f"{what}: {one:,.0f} {unit} on one thread, {all_:,.0f} on {threads}"

    lines = [line(f"int8, {isa}", "GMAC/s", rate) for isa, rate in limits["int8_mac"].items()]
    lines += [
        line(f"float32, {isa}", "GMAC/s", rate) for isa, rate in limits["float32_mac"].items()
    ]
    return [*lines, line("memory", "GB/s", limits["read_bytes"])]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f}"
