"""foreword's C++ core. Only `foreword.weights` and `foreword.backends.cpu` import it."""

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
