"""How close `foreword simulate` comes to a real server, on this machine.

    python tools/validate_simulation.py measure chat FOLDER     (as often as wanted, 45 s each)
    python tools/validate_simulation.py compare FOLDER

``measure`` loads a fresh server and keeps what the client and the server saw. ``compare`` fits a
profile to each run's own server, simulates the same plan, and prints both side by side. Prompts
go as completions of token ids, so that they are to the token what is simulated.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from foreword.bench.load.report import LoadSettings, run_load_bench
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import RECIPES
from foreword.bench.served import ServedProcess
from foreword.bench.stats import Percentiles
from foreword.cli.remote import Remote
from foreword.config.engine import EngineOptions
from foreword.core.trace import STEPS_KEPT
from foreword.sim.fit import fit_server
from foreword.sim.settings import SimSettings
from foreword.sim.simulate import simulate

RATES = {"chat": 3.0, "rag": 4.0, "mixed": 2.5}
SECONDS, WARMUP, SEEDS = 36, 5, 15
PATHS = (f"/v1/steps?last={STEPS_KEPT}", "/v1/models", "/v1/stats")


def measure(workload: str, folder: Path) -> None:
    """Load a fresh server; write what came of it to the next free file."""
    rate = RATES[workload]
    count = round(SECONDS * rate)
    settings = LoadSettings(
        num_prompts=count, warmup=WARMUP, request_rate=rate, seed=1, calibrate=False
    )
    command = (sys.executable, "-m", "foreword", "serve", "--port", "{port}")
    server = ServedProcess("foreword", command, ready_path="/readyz")
    try:
        server.wait_until_ready()
        target = Target(url=server.url, endpoint="completions")
        report = asyncio.run(run_load_bench(target, RECIPES[workload](), settings))
        answers = {path: Remote(server.url).get(path) for path in PATHS}
    finally:
        server.close()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{workload}-{len(list(folder.glob(f'{workload}-*.json')))}.json"
    path.write_text(json.dumps({"load": report.to_json(), "answers": answers}))
    print(path, report.summary.ttft_ms)


def compare(folder: Path) -> None:
    """Print a row for each run and its simulation, and a profile for each run."""
    print("| workload | run | TTFT p50, ms | simulated | | p99, ms | simulated | |")
    print("|---|---|---|---|---|---|---|---|")
    paths = sorted(folder.glob("*-*.json"))
    abouts = []
    for workload, group in groupby(paths, key=lambda path: path.stem.rpartition("-")[0]):
        for path in group:
            run = json.loads(path.read_text())
            real = run["load"]["summary"]["ttft_ms"]
            profile, simulated = imitate(workload, run)
            cells = [workload, path.stem.rpartition("-")[2]]
            for name in ("p50", "p99"):
                value = statistics.median(getattr(each, name) for each in simulated)
                cells += [f"{real[name]:.1f}", f"{value:.1f}", f"{value / real[name] - 1:+.0%}"]
            print("| " + " | ".join(cells) + " |")
            abouts.append(f"{path.stem}: {profile}")
    print("", *abouts, sep="\n")


def imitate(workload: str, run: dict[str, Any]) -> tuple[Any, list[Percentiles]]:
    """Fit a profile to a run and simulate its plan with the noise of several seeds."""
    profile = fit_server("the server", lambda path: run["answers"][path])
    load = run["load"]["load"]
    found = []
    for seed in range(SEEDS):
        report = simulate(
            RECIPES[workload](),
            SimSettings(
                num_prompts=load["num_prompts"] + load["warmup"],
                request_rate=run["load"]["workload"]["request_rate"],
                seed=run["load"]["workload"]["seed"],
                noise_seed=seed,
            ),
            EngineOptions(),
            profile,
            policies=["shortest"],
        )
        result = report.policies[0].result.without_warmup(load["warmup"])
        found.append(Percentiles.of((record.ttft_s or 0.0) * 1e3 for record in result.records))
    return profile, found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", workload, folder] if workload in RATES:
            measure(workload, Path(folder))
        case ["compare", folder]:
            compare(Path(folder))
        case _:
            sys.exit(__doc__)
