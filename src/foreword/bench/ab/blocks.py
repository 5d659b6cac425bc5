"""What a run measures, on plain arrays, and the order it is measured in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Side = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class Block:
    """What one side gave for one block of requests.

    Attributes:
        ttft_s, tpot_s: an entry for each request, in the plan's order; nan where there is none (it
            failed, or made too few tokens).
        num_good: requests that met the SLO; None: no SLO was stated.
        duration_s: first sent → last ended.
    """

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    num_good: int | None
    duration_s: float

    @property
    def num_failed(self) -> int:
        """Requests without a first token."""
        return int(np.isnan(self.ttft_s).sum())


@dataclass(frozen=True, slots=True)
class BlockPair:
    """The same requests to both sides, one right after the other.

    The machine's slow and fast spells last longer than a block, so they fall on both alike; what is
    left between the two is noise and the effect. The pair is what resampling draws.

    Attributes:
        first: the side that went first.
    """

    a: Block
    b: Block
    first: Side


def draw_order(pairs: int, rng: np.random.Generator) -> list[Side]:
    """Draw which side goes first in each pair.

    In twos, ABBA or BAAB: an even drift of the machine cancels, and nothing periodic can keep step
    with the order.
    """
    order: list[Side] = []
    for _ in range(-(-pairs // 2)):
        order += rng.permutation(["a", "b"]).tolist()
    return order[:pairs]


def failed_share(pairs: Sequence[BlockPair], side: Side) -> float:
    """Share of a side's requests that failed."""
    blocks: list[Block] = [getattr(pair, side) for pair in pairs]
    return sum(block.num_failed for block in blocks) / sum(len(block.ttft_s) for block in blocks)
