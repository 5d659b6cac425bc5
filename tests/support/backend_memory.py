"""Judges the memory of a `CpuBackend`: ``python -m support.backend_memory CASE MODEL``.

In a process of its own: the pools and weights of other tests come and go, at any time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from support.soak import resident_bytes
from support.waiting import wait_for

from foreword.backends.cpu.backend import CpuBackend
from foreword.core.params import SamplingParams
from foreword.core.step import SequenceStep, StepPlan
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

_MIB = 1 << 20


def _step(num_tokens: int, *blocks: int) -> StepPlan:
    params = SamplingParams(temperature=0)
    return StepPlan((SequenceStep(1, tuple(range(num_tokens)), 0, blocks, (0,), params),))


def pages(backend: CpuBackend) -> None:
    """Pages of a pool are made ahead of what is used, and not for all of it."""
    before = resident_bytes()
    backend.allocate((1 << 30) // backend.block_bytes)
    wait_for(lambda: resident_bytes() - before >= 60 * _MIB)
    time.sleep(0.05)
    assert resident_bytes() - before < 100 * _MIB
    backend.execute(_step(1, 100 * _MIB // backend.block_bytes))
    wait_for(lambda: resident_bytes() - before >= 150 * _MIB)


def logits(backend: CpuBackend) -> None:
    """64 rows of a vocabulary of 65,536 are 16 MB: a prompt makes them for what it wants only."""
    backend.allocate(4)
    backend.execute(_step(1, 0))
    before = resident_bytes()
    backend.execute(_step(64, 0, 1, 2, 3))
    assert resident_bytes() - before < 4 * _MIB


if __name__ == "__main__":
    case = {"pages": pages, "logits": logits}[sys.argv[1]]
    with GGUFFile.open(Path(sys.argv[2])) as file:
        case(CpuBackend(file, load_spec(file), num_threads=1))
