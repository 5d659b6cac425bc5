"""foreword's C++ core. Only `foreword.weights` and `foreword.backends.cpu` import it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def dtype_info(ggml_type: int) -> tuple[str, int, int] | None:
    """Name, weights in a block, bytes of a block; None for a type that foreword does not read."""

def dequantize(ggml_type: int, data: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
    """``n`` stored weights as float; ``data`` holds exactly them. Releases the GIL.

    Raises:
        ValueError: the type is unknown, or ``data`` has another length.
    """

def skip_strings(data: NDArray[np.uint8], offset: int, count: int) -> tuple[int, int]:
    """Walk ``count`` GGUF strings (64-bit length, bytes) that start at ``offset``.

    Returns how many are whole, and where the next one starts: the first number is less than
    ``count`` where a string leaves the data.
    """

def read_strings(data: NDArray[np.uint8], offset: int, count: int) -> list[str]:
    """Decode the strings that `skip_strings` walks; bytes that are no UTF-8 become surrogates."""

class SamplingSpec:
    """How to draw; the meanings are those of `foreword.core.params.SamplingParams`.

    ``logprobs`` and ``prompt_logprobs`` are -1 where nothing is to be reported. A token that
    ``logit_bias`` names twice gets both.
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Sequence[tuple[int, float]] = ...,
        logprobs: int = -1,
        prompt_logprobs: int = -1,
    ) -> None: ...

class SamplerScratch:
    """Buffers that `sample` and `score` reuse from call to call; for one thread at a time."""

    def __init__(self) -> None: ...

_TokenLogprob = tuple[int, float, int, tuple[tuple[int, float], ...]]

def sample(
    logits: NDArray[np.float32],
    spec: SamplingSpec,
    *,
    seed: int,
    draws: Sequence[int],
    position: int,
    history: Sequence[int] = ...,
    num_prompt_tokens: int = 0,
    banned: Sequence[int] = ...,
    scratch: SamplerScratch,
) -> tuple[list[int], list[_TokenLogprob]]:
    """One token for each of ``draws``, and `score` of each where ``spec.logprobs`` is not -1.

    ``logits`` is edited on the way and restored. ``seed`` is in [0, 2**64). Releases the GIL.

    Raises:
        IndexError: an id is outside the vocabulary.
        ValueError: every logit is NaN, -inf or banned.
    """

def score(
    logits: NDArray[np.float32], token_id: int, top: int, scratch: SamplerScratch
) -> _TokenLogprob:
    """Token, log-probability (never below -9999), rank from 1, and the ``top`` likeliest tokens.

    Raises:
        IndexError: ``token_id`` is outside the vocabulary.
    """

def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox 4x32-10: four 32-bit numbers from a counter of four and a key of two."""
