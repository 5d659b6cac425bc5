"""Arrays of floats, and how to compare them to the bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def normal(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape).astype(np.float32)


def bits(values: Floats) -> NDArray[np.uint32]:
    return values.view(np.uint32)
