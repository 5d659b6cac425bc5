"""Times what a step costs beside the backend: ``python tools/time_steps.py --model FILE.gguf``.

Streams that write English, and 1,000 prompts in line for a slot, over a backend that computes
nothing. Microseconds at the median of some hundred steps: what the scheduler takes to plan and to
take the results in, and what the engine takes for each, the scheduler's part included.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from statistics import median
from typing import Any

from foreword.backends.null import NullBackend
from foreword.config.cache import CacheConfig
from foreword.config.engine import EngineConfig
from foreword.config.scheduler import SchedulerConfig
from foreword.core.params import SamplingParams
from foreword.core.step import SequenceStep
from foreword.engine.engine import Engine
from foreword.text.tokenizer import Tokenizer
from foreword.weights.gguf import GGUFFile

PROMPT, WAITING, STEPS = 100, 1000, 320
PARTS = ("scheduler.plan", "scheduler.apply", "engine.plan", "engine.apply")


class Stopwatch:
    """Notes how long each call of some functions takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in PARTS}

    def watch(self, owner: Any, name: str, call: str) -> None:
        """Time each call of a method from now on."""
        function: Callable[..., Any] = getattr(owner, call)
        seconds = self.seconds[name]

        def timed(*args: Any) -> Any:
            began_s = time.perf_counter()
            result = function(*args)
            seconds.append(time.perf_counter() - began_s)
            return result

        setattr(owner, call, timed)


def start(tokenizer: Tokenizer, num_streams: int) -> Engine:
    """An engine in which so many streams run, each somewhere else in a text."""
    text = tokenizer.encode(topics["specialnames"])

    def next_token(history: Sequence[int], step: SequenceStep, draw: int) -> int:
        return text[(step.seq_id * 37 + step.start) % len(text)]

    backend = NullBackend(
        vocab_size=tokenizer.vocab_size, next_token=next_token, keeps_contents=False
    )
    scheduler = SchedulerConfig(
        max_num_batched_tokens=512, max_num_seqs=num_streams, max_model_len=2048
    )
    config = EngineConfig(
        cache=CacheConfig(num_blocks=40_000), scheduler=scheduler, seed=0, choices=()
    )
    engine = Engine(backend, tokenizer, config, model_name="null")
    rng = random.Random(1)
    params = SamplingParams(max_tokens=1024, ignore_eos=True)
    for number in range(num_streams + WAITING):
        length = PROMPT + rng.randrange(16)  # so that a sixteenth of them fill a block
        prompt = [rng.randrange(tokenizer.vocab_size) for _ in range(length)]
        request = engine.make_request(prompt, params, request_id=f"r{number}")
        engine.add(engine.prepare(request))
    while len(engine.scheduler._running.streams) < num_streams:
        engine.step()
    return engine


def main() -> None:
    """Print a line for each number of streams."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="whose tokenizer is used")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64, 256])
    args = parser.parse_args()
    tokenizer = Tokenizer.load(GGUFFile.open(args.model))
    print(f"{'streams':>8}" + "".join(f"{name:>18}" for name in PARTS) + "   µs")
    for num_streams in args.streams:
        engine, watch = start(tokenizer, num_streams), Stopwatch()
        gc.collect()
        gc.freeze()
        for name in PARTS:
            owner, call = name.split(".")
            watch.watch(engine if owner == "engine" else engine.scheduler, name, call)
        for _ in range(STEPS):
            engine.step()
        gc.unfreeze()
        micros = (median(watch.seconds[name]) * 1e6 for name in PARTS)
        print(f"{num_streams:8}" + "".join(f"{each:18.0f}" for each in micros))


if __name__ == "__main__":
    main()
