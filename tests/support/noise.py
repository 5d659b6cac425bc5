"""A noisy machine: slow spells that last, single requests that are slow, a long tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreword.bench.ab.blocks import Block, BlockPair, draw_order

_GRID_S = 0.01


class NoisyMachine:
    """How much longer than on a quiet machine things take.

    Spells are a first-order autoregression (``spells`` is its standard deviation, ``spell_s`` how
    long it remembers), a function of time alone: what runs at the same time shares them.

    Args:
        jitter: standard deviation of the log of each single request.
        tail: share of requests that take up to four times as long.
        length_s: when the spells begin again.
    """

    def __init__(
        self,
        seed: int,
        *,
        spells: float = 0.1,
        spell_s: float = 1.0,
        jitter: float = 0.08,
        tail: float = 0.03,
        length_s: float = 300.0,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._jitter, self._tail = jitter, tail
        keep = np.exp(-_GRID_S / spell_s)
        kicks = self._rng.normal(size=int(length_s / _GRID_S)) * spells * np.sqrt(1 - keep**2)
        level, levels = 0.0, []
        for kick in kicks:
            level = keep * level + kick
            levels.append(level)
        self._spells = np.exp(levels)

    def slowness(self, now_s: float) -> float:
        """Draw how many times longer something takes that begins now."""
        slow = self._spells[int(now_s / _GRID_S) % len(self._spells)]
        slow *= np.exp(self._rng.normal() * self._jitter)
        return (
            float(slow * self._rng.uniform(1.5, 4.0)) if self._rng.random() < self._tail else slow
        )


@dataclass(frozen=True)
class VirtualRun:
    """Blocks as a run would measure them, on a clock of their own."""

    pairs: int = 12
    requests: int = 16
    ttft_s: float = 0.1
    slower: float = 0.0
    """How much slower side b is, as a share."""

    def measure(self, machine: NoisyMachine, seed: int) -> Sequence[BlockPair]:
        """One closed loop with one request at a time; prompts of different lengths."""
        rng = np.random.default_rng(seed)
        now_s = 0.0
        measured = []
        for first in draw_order(self.pairs, rng):
            sizes = np.exp(rng.normal(size=self.requests) * 0.2)
            blocks = {}
            for side in ("a", "b") if first == "a" else ("b", "a"):
                factor = 1 + self.slower * (side == "b")
                ttft_s, began_s = [], now_s
                for size in sizes:
                    ttft_s.append(self.ttft_s * size * factor * machine.slowness(now_s))
                    now_s += ttft_s[-1]
                latencies = np.array(ttft_s)
                blocks[side] = Block(latencies, latencies / 10, None, now_s - began_s)
                now_s += 0.1
            measured.append(BlockPair(blocks["a"], blocks["b"], first))
        return measured
