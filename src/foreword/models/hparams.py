"""Typed reading of a model's hyperparameters from GGUF metadata."""

from __future__ import annotations

import math

from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.weights.gguf import GGUFFile

MAX_SIZE = 2**24  # of any dimension: keeps products of two within 64 bits


class Hparams:
    """The metadata under one architecture's prefix: ``llama.block_count`` is ``block_count``.

    All reads raise `ModelFileError`, naming the key, where a value is missing or makes no sense.
    """

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file = file
        self.architecture = architecture

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def fail(self, name: str, message: str) -> ModelFileError:
        """An error about the value of ``name``, to be raised."""
        return ModelFileError(self.file.path, self._key(name), message)

    def size(self, name: str, default: int | None = None) -> int:
        """A count of at least one."""
        value = self.file.metadata.get(self._key(name), default)
        if value is None:
            raise self.fail(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
            raise self.fail(name, f"must be an integer in [1, {MAX_SIZE}], not {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.file.metadata.get(self._key(name), default)
        if value is None:
            raise self.fail(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(name, f"must be a number, not {value!r}")
        if not (math.isfinite(value) and value > 0):
            raise self.fail(name, f"must be positive and finite, not {value}")
        return float(value)

    def rope_scale(self) -> float:
        """The divisor of positions under linear RoPE scaling; 1 where there is none.

        Raises:
            UnsupportedModelError: the model needs another kind of scaling.
        """
        kind = self.file.metadata.get(self._key("rope.scaling.type"), "none")
        if kind == "none":
            return 1.0
        if kind != "linear":
            raise UnsupportedModelError(
                f"{self.file.path}: RoPE scaling {kind!r} is not supported; 'linear' is"
            )
        return self.number("rope.scaling.factor")

    def vocab_size(self) -> int:
        """Rows of the token embedding."""
        info = self.file.tensors.get("token_embd.weight")
        if info is None:
            raise ModelFileError(self.file.path, "tensor 'token_embd.weight'", "is missing")
        return info.shape[0]

    def optional_tensor(self, name: str) -> str | None:
        """``name`` where the file has such a tensor."""
        return name if name in self.file.tensors else None
