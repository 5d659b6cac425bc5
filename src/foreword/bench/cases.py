"""Shapes that kernels are tested and timed with: one table for parity tests and benchmarks.

Tails are where kernels go wrong: sizes that fill no register, tile, group, panel or block. Model
shapes are where time goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ISAS = ("avx512_vnni", "avx512", "avx2", "portable")
"""Kernel tables beside the reference, fastest first."""

KV_DTYPES = ("float32", "float16", "int8")

TOKENS = (1, 4, 16, 128, 512)
"""Decode, several sequences' decode, a chunk's tail, prompts."""


class ProductShape(NamedTuple):
    """``tokens`` activations of ``cols`` inputs, by a matrix of ``rows`` outputs."""

    tokens: int
    rows: int
    cols: int


class MatrixShape(NamedTuple):
    """A matrix of a model, as its file stores it."""

    name: str
    dtype: str
    rows: int
    cols: int


class AttentionShape(NamedTuple):
    """Queries at ``positions``, ``group`` heads that share one key/value head; window 0: none."""

    head_dim: int
    group: int
    positions: Sequence[int]
    window: int


FLOAT_TAILS = (
    ProductShape(1, 1, 16),
    ProductShape(1, 4, 64),
    ProductShape(2, 5, 576),
    ProductShape(3, 7, 80),
    ProductShape(4, 8, 33),
    ProductShape(5, 12, 100),
    ProductShape(13, 30, 640),
)

GROUPED_TAILS = (
    ProductShape(1, 1, 1),
    ProductShape(2, 31, 1),
    ProductShape(3, 32, 2),
    ProductShape(4, 33, 3),
    ProductShape(5, 64, 1),
    ProductShape(7, 100, 2),
    ProductShape(13, 40, 5),
)
"""Of quantised products; ``cols`` in blocks of the stored type."""

LAYER_MATRICES = (
    MatrixShape("SmolLM2 q, output", "Q4_1", 576, 576),
    MatrixShape("SmolLM2 k, v", "Q4_1", 192, 576),
    MatrixShape("SmolLM2 gate, up", "Q4_1", 1536, 576),
    MatrixShape("SmolLM2 down", "Q4_1", 576, 1536),
    MatrixShape("Gemma q", "Q5_0", 1024, 640),
    MatrixShape("Gemma k", "Q5_0", 256, 640),
    MatrixShape("Gemma output", "Q4_K", 640, 1024),
    MatrixShape("Gemma gate, up", "Q5_0", 2048, 640),
    MatrixShape("Gemma down", "Q4_K", 640, 2048),
    MatrixShape("Gemma down", "Q6_K", 640, 2048),
)

OUTPUT_MATRICES = (
    MatrixShape("SmolLM2 logits", "Q8_0", 49152, 576),
    MatrixShape("Gemma logits", "Q8_0", 262144, 640),
)
"""Only the last token of a prompt and of each decode step meets these."""

ATTENTION_TAILS = (
    AttentionShape(64, 3, range(1), 0),
    AttentionShape(64, 3, range(16), 0),
    AttentionShape(64, 1, range(100, 101), 0),
    AttentionShape(64, 9, range(63, 65), 0),
    AttentionShape(64, 3, range(37, 50), 0),
    AttentionShape(80, 2, range(15, 17), 0),
    AttentionShape(72, 5, range(3, 40), 0),
    AttentionShape(96, 1, range(127, 130), 0),
    AttentionShape(32, 8, range(60, 75), 16),
    AttentionShape(33, 2, range(70, 73), 0),
    AttentionShape(256, 4, range(190, 198), 20),
    AttentionShape(128, 7, range(33), 1),
    AttentionShape(64, 4, (2, 17, 18, 90, 191), 32),
    AttentionShape(64, 3, range(120, 136), 70),
)

MODEL_ATTENTION = {
    "SmolLM2": AttentionShape(64, 3, (), 0),
    "Gemma, local": AttentionShape(256, 4, (), 512),
    "Gemma, global": AttentionShape(256, 4, (), 0),
}
"""Heads of real models; the benchmark says where the queries stand."""

WIDTHS = (1, 3, 16, 17, 64, 80, 255, 576)
"""Of kernels that go over a row."""
