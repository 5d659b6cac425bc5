"""Random matrices in every stored type."""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray

from foreword import _core

# Where a block's half floats stand: random bytes there would be no sane scales.
_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "IQ4_NL": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
DTYPES = (*_HALVES, "F32", "F16", "BF16")


def number(dtype: str) -> int:
    return int(gguf.GGMLQuantizationType[dtype])


def block_elements(dtype: str) -> int:
    return int(_core.dtype_info(number(dtype))[1])


def random_matrix(rng: np.random.Generator, dtype: str, rows: int, cols: int) -> NDArray[np.uint8]:
    """The stored bytes of a random matrix."""
    if dtype not in _HALVES:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        stored = gguf.quantize(values, gguf.GGMLQuantizationType[dtype])
        return stored.reshape(-1).view(np.uint8)
    _, elements, block_bytes = _core.dtype_info(number(dtype))
    blocks = rng.integers(0, 256, (rows * cols // elements, block_bytes), np.uint8)
    for at in _HALVES[dtype]:
        scales = rng.uniform(-0.02, 0.02, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)
