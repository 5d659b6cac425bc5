"""Driving a backend by hand: sequences with their own blocks, computed in any cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foreword.backends.cpu.backend import CpuBackend
from foreword.core.step import SequenceStep, StepPlan

BLOCK_SIZE = 16


class ByHand:
    """Blocks are dealt out in a scrambled order, so that a table is never just 0, 1, 2, …"""

    def __init__(self, backend: CpuBackend, num_blocks: int = 512) -> None:
        self.backend = backend
        backend.allocate(num_blocks)
        self.free = np.random.default_rng(3).permutation(num_blocks).tolist()

    def blocks_for(self, num_tokens: int) -> list[int]:
        return [self.free.pop() for _ in range(-(-num_tokens // BLOCK_SIZE))]

    def logits(
        self, prompts: Sequence[Sequence[int]], cuts: Iterable[int]
    ) -> list[NDArray[np.float32]]:
        """All logits of all prompts, computed side by side in chunks that end at ``cuts``."""
        tables = [self.blocks_for(len(prompt)) for prompt in prompts]
        parts: list[list[NDArray[np.float32]]] = [[] for _ in prompts]
        start = 0
        for end in [*cuts, max(map(len, prompts))]:
            steps = [
                SequenceStep(i, prompt[start:end], start, table)
                for i, (prompt, table) in enumerate(zip(prompts, tables, strict=True))
                if start < len(prompt)
            ]
            plan = StepPlan(tuple(steps))
            rows = iter(self.backend.logits(plan, range(plan.num_tokens)))
            for step in steps:
                parts[step.seq_id] += [next(rows) for _ in step.token_ids]
            start = end
        for table in tables:
            self.free += table
        return [np.stack(part) for part in parts]

    def logits_at(self, prompt: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
        """Logits of some positions of a prompt that is computed in one step."""
        table = self.blocks_for(len(prompt))
        logits = self.backend.logits(StepPlan((SequenceStep(0, prompt, 0, table),)), positions)
        self.free += table
        return logits


def every(size: int, length: int) -> range:
    """Cuts of a sequence into chunks of ``size``."""
    return range(size, length, size)
