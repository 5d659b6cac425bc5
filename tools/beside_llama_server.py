"""TTFT under load beside llama-server: the numbers of docs/evidence/scheduling.md.

    python tools/beside_llama_server.py --model FILE.gguf --llama-server PROGRAM \\
        --trace mooncake-conversation.jsonl.gz --out FOLDER [PART ...]

Each part takes some minutes and writes FOLDER/PART-SETUP.json; a part whose file is there is not
run again. Both servers are up at once, and one is asked after the other. Leave the machine alone.

behind        8 words, alone and 0.1 s behind 2,800 words
gap           the longest gap in a running stream while a prompt of 8,000 tokens comes
capacity      requests a second of `mixed` that a closed loop gets through
mixed-ours    `mixed` at 70 % of our capacity: TTFT of the short ones (needs `capacity`)
mixed-theirs  the same at 70 % of llama-server's
trace         the highest load of a trace at which our p90 of TTFT is at most 1 s, and what
              llama-server's is at a third of that load
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from foreword.bench.load.corpus import text
from foreword.bench.load.plan import Message, Passage, PlannedRequest
from foreword.bench.load.prepare import prepare
from foreword.bench.load.record import RequestRecord
from foreword.bench.load.report import LoadSettings, run_load_bench
from foreword.bench.load.run import run_load
from foreword.bench.load.summary import LoadSummary
from foreword.bench.load.target import Target
from foreword.bench.load.trace import Trace, read_trace
from foreword.bench.load.workloads import Mixed, Recipe
from foreword.bench.machine import describe_machine, now_text
from foreword.bench.served import ServedProcess

OURS, THEIRS = "foreword", "llama-server"
SETUPS = {  # of llama-server; each slot has a context of 8,192
    "np4": ["-np", "4", "-c", "32768"],
    "np8": ["-np", "8", "-c", "65536", "-b", "256", "-ub", "256"],
}
TPOT_SLO_MS = 50
MIXED = Mixed(short_tokens=45, long_tokens=3000, long_share=0.1, output_tokens=32)
MIXED_REQUESTS = 100
LOAD_SHARE = 0.7
LENGTH_SCALE = 1 / 16
TRACE_TTFT_MS = 1000.0
TRACE_RUN_S = 45.0  # of arrivals, in each run


@dataclass(frozen=True)
class Bench:
    """What every part gets.

    Attributes:
        targets: the servers under test.
        tpot_slo: ours with ``--tpot-slo-ms``.
        result: what another part has found.
    """

    targets: Mapping[str, Target]
    tpot_slo: Target
    trace: Path
    result: Callable[[str], Any]


def exchange(target: Target, *requests: PlannedRequest) -> Sequence[RequestRecord]:
    """Send some requests, all of which must be answered."""
    records = uvloop.run(run_load(target, requests, timeout_s=600.0)).records
    for record in records:
        assert record.ok, record.failure
    return records


def load(target: Target, recipe: Recipe, **settings: Any) -> LoadSummary:
    """Run `foreword bench serve`; nothing may fail."""
    asked = LoadSettings(calibrate=False, warmup=0, ask_for=("ignore_eos",), **settings)
    summary = uvloop.run(run_load_bench(target, recipe, asked)).summary
    assert not summary.errors, summary.errors
    return summary


def request(index: int, passage: Passage, max_tokens: int, at_s: float = 0.0) -> PlannedRequest:
    """Plan one request by hand."""
    return PlannedRequest(
        index=index,
        kind="",
        messages=(Message("user", passage),),
        max_tokens=max_tokens,
        intended_s=at_s,
    )


def behind(bench: Bench) -> Any:
    """Time a short request that comes while a long prompt is computed."""
    words = iter(text().split())

    def passage(count: int) -> Passage:
        return Passage(" ".join(next(words) for _ in range(count)), count)

    found: dict[str, Any] = {name: {"alone_ms": [], "behind_ms": []} for name in bench.targets}
    for name, target in [*bench.targets.items()] * 2:
        for _ in range(3):
            (alone,) = exchange(target, request(0, passage(8), 8))
            found[name]["alone_ms"].append(ttft_ms(alone))
        long, short = request(0, passage(2800), 8), request(1, passage(8), 8, at_s=0.1)
        found[name]["behind_ms"].append([ttft_ms(r) for r in exchange(target, long, short)])
    return found


def gap(bench: Bench) -> Any:
    """Watch one stream while the longest prompt that the context takes comes."""
    found = {}
    for name, target in {
        **bench.targets,
        f"{OURS} --tpot-slo-ms {TPOT_SLO_MS}": bench.tpot_slo,
    }.items():
        target, corpus = uvloop.run(prepare(target, ("ignore_eos",)))
        stream = request(0, corpus.passage(0, 64), 1000)
        prompt = request(1, corpus.passage(5000, 8000), 2, at_s=1.0)
        watched, long = exchange(target, stream, prompt)
        times_s = watched.token_times_s
        sent_s, first_s = long.sent_s or 0.0, long.first_content_s or 0.0
        assert times_s[0] < sent_s < first_s < times_s[-1], "the stream must run all the while"
        gaps = [b - a for a, b in itertools.pairwise(times_s) if sent_s < b and a < first_s]
        found[name] = {
            "longest_gap_ms": 1e3 * max(gaps),
            "tokens_meanwhile": sum(sent_s < time_s < first_s for time_s in times_s),
            "ttft_of_8000_ms": ttft_ms(long),
        }
    return found


def capacity(bench: Bench) -> Any:
    """Run `mixed` with always sixteen requests in flight."""
    return {
        name: load(target, MIXED, num_prompts=60, max_concurrency=16, seed=1).request_rps
        for name, target in bench.targets.items()
    }


def mixed(bench: Bench, whose: str, seed: int) -> Any:
    """Run `mixed` on both at a share of what one of them can, with texts of its own."""
    rate = LOAD_SHARE * bench.result("capacity")[whose]
    found: dict[str, Any] = {"requests_per_s": rate}
    for name, target in bench.targets.items():
        summary = load(target, MIXED, num_prompts=MIXED_REQUESTS, request_rate=rate, seed=seed)
        found[name] = summary.to_json()["ttft_ms_by_kind"]
    return found


def trace(bench: Bench) -> Any:
    """Search the shortest time scale that our server bears; then see what the other one does."""
    recorded_s = [row.at_s for row in read_trace(bench.trace).rows]

    def run(name: str, time_scale: float, **settings: Any) -> dict[str, Any]:
        recipe = Trace(
            path=str(bench.trace),
            length_scale=LENGTH_SCALE,
            time_scale=time_scale,
            arrivals="spread",
        )
        count = sum(at_s * time_scale <= TRACE_RUN_S for at_s in recorded_s)
        summary = load(bench.targets[name], recipe, num_prompts=count, **settings)
        assert summary.ttft_ms is not None
        print(
            f"  {name}: time scale {time_scale:.2f}, p90 {summary.ttft_ms.p90:.0f} ms",
            file=sys.stderr,
        )
        return {"server": name, "time_scale": time_scale, **summary.to_json()["ttft_ms"]}

    too_short, long_enough = 1.0, 16.0
    runs: list[dict[str, Any]] = []
    for _ in range(4):
        middle = (too_short * long_enough) ** 0.5
        runs.append(run(OURS, middle, seed=len(runs)))
        if runs[-1]["p90"] <= TRACE_TTFT_MS:
            long_enough = middle
        else:
            too_short = middle
    return {
        "highest_load": 1 / long_enough,
        "runs": [*runs, run(THEIRS, 3 * long_enough, seed=9)],
    }


PARTS: Mapping[str, Callable[[Bench], Any]] = {
    "behind": behind,
    "gap": gap,
    "capacity": capacity,
    "mixed-ours": lambda bench: mixed(bench, OURS, seed=2),
    "mixed-theirs": lambda bench: mixed(bench, THEIRS, seed=3),
    "trace": trace,
}


def ttft_ms(record: RequestRecord) -> float:
    """Give the TTFT of a request that was answered."""
    assert record.ttft_s is not None
    return 1e3 * record.ttft_s


@contextlib.contextmanager
def served(name: str, *command: str | Path) -> Iterator[Target]:
    """Run a server that takes prompts as token ids."""
    process = ServedProcess(name, [*map(str, command), "--port", "{port}"], ready_path="/health")
    try:
        process.wait_until_ready()
        yield Target(url=process.url, endpoint="completions")
    finally:
        process.close()


def main() -> None:
    """Run what has not been run yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--llama-server", type=Path, required=True, help="the program")
    parser.add_argument("--setup", choices=SETUPS, default="np4", help="of llama-server")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end the servers

    def file(part: str) -> Path:
        return Path(asked.out, f"{part}-{asked.setup}.json")

    ours = [sys.executable, "-m", "foreword", "serve", asked.model, "--num-threads", asked.threads]
    theirs = [asked.llama_server, "-m", asked.model, "-t", asked.threads, *SETUPS[asked.setup]]
    with (
        served(OURS, *ours) as plain,
        served(OURS, *ours, "--tpot-slo-ms", str(TPOT_SLO_MS)) as tpot_slo,
        served(THEIRS, *theirs) as llama,
    ):
        bench = Bench(
            {OURS: plain, THEIRS: llama},
            tpot_slo,
            asked.trace,
            lambda part: json.loads(file(part).read_text())["result"],
        )
        for part in asked.parts or PARTS:
            if not file(part).exists():
                print(part, file=sys.stderr)
                result = {"made_at": now_text(), "result": PARTS[part](bench)}
                file(part).write_text(
                    json.dumps(result | {"machine": describe_machine()}, indent=2)
                )
            print(part, json.dumps(json.loads(file(part).read_text())["result"], indent=2))


if __name__ == "__main__":
    main()
