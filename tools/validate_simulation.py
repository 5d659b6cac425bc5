"""How close `foreword simulate` comes to a real server, on this machine.

    python tools/validate_simulation.py measure chat FOLDER     (as often as wanted, 45 s each)
    python tools/validate_simulation.py compare FOLDER [RUN]

``measure`` loads a fresh server and keeps what the client and the server saw. ``compare`` fits a
profile to each run's own server, or takes that of one run (``chat-0``) for all, simulates the same
plans, and prints both side by side. Prompts go as completions of token ids, so that they are to the
token what is simulated.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from foreword.bench.load.report import LoadSettings, run_load_bench
from foreword.bench.load.target import Target
from foreword.bench.load.workloads import Chat, Mixed, Rag
from foreword.bench.served import ServedProcess
from foreword.bench.stats import Percentiles
from foreword.cli.remote import Remote
from foreword.config.engine import EngineOptions
from foreword.core.trace import STEPS_KEPT
from foreword.sim.cost import CostProfile
from foreword.sim.fit import fit_server
from foreword.sim.settings import SimSettings
from foreword.sim.simulate import simulate

WORKLOADS = {"chat": (Chat(), 3.0), "rag": (Rag(documents=12), 4.0), "mixed": (Mixed(), 2.5)}
SECONDS, WARMUP, SEED, NOISE_SEEDS = 36, 5, 1, 11
PATHS = (f"/v1/steps?last={STEPS_KEPT}", "/v1/models", "/v1/stats")


def measure(workload: str, folder: Path) -> None:
    """Load a fresh server; write what came of it to the next free file."""
    recipe, rate = WORKLOADS[workload]
    settings = LoadSettings(
        num_prompts=round(SECONDS * rate),
        warmup=WARMUP,
        request_rate=rate,
        seed=SEED,
        calibrate=False,
    )
    command = (sys.executable, "-m", "foreword", "serve", "--port", "{port}")
    server = ServedProcess("foreword", command, ready_path="/readyz")
    try:
        server.wait_until_ready()
        target = Target(url=server.url, endpoint="completions")
        report = asyncio.run(run_load_bench(target, recipe, settings))
        answers = {path: Remote(server.url).get(path) for path in PATHS}
    finally:
        server.close()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{workload}-{len(list(folder.glob(f'{workload}-*.json')))}.json"
    path.write_text(json.dumps({"load": report.to_json(), "answers": answers}))
    print(path, report.summary.ttft_ms)


def compare(folder: Path, source: str | None) -> None:
    """Print a row for each run and its simulation, and what was fitted."""
    print("| workload | run | TTFT p50, ms | simulated | | p99, ms | simulated | |")
    print("|---|---|---|---|---|---|---|---|")
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*-*.json"))}
    profiles = {name: fitted(runs[source or name]) for name in runs}
    for name, run in runs.items():
        workload, _, number = name.partition("-")
        real, simulated = run["load"]["summary"]["ttft_ms"], imitate(workload, profiles[name])
        cells = [workload, number]
        for share in ("p50", "p99"):
            value = statistics.median(getattr(each, share) for each in simulated)
            cells += [f"{real[share]:.1f}", f"{value:.1f}", f"{value / real[share] - 1:+.0%}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    for name, profile in profiles.items():
        print(name, json.dumps(profile.to_json()))


def fitted(run: dict[str, Any]) -> CostProfile:
    """Fit a profile to what a run's server told."""
    return fit_server("the server", lambda path: run["answers"][path])


def imitate(workload: str, profile: CostProfile) -> list[Percentiles]:
    """Simulate what `measure` measures, with the noise of several seeds."""
    recipe, rate = WORKLOADS[workload]
    found = []
    for noise_seed in range(NOISE_SEEDS):
        settings = SimSettings(
            num_prompts=round(SECONDS * rate) + WARMUP,
            request_rate=rate,
            seed=SEED,
            noise_seed=noise_seed,
        )
        report = simulate(recipe, settings, EngineOptions(), profile, policies=["shortest"])
        result = report.policies[0].result.without_warmup(WARMUP)
        found.append(Percentiles.of((record.ttft_s or 0.0) * 1e3 for record in result.records))
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", workload, folder] if workload in WORKLOADS:
            measure(workload, Path(folder))
        case ["compare", folder, *source] if len(source) <= 1:
            compare(Path(folder), source[0] if source else None)
        case _:
            sys.exit(__doc__)
