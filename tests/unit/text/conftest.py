"""The tokenizers of the two models."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.text.tokenizer import Tokenizer
from foreword.weights.gguf import GGUFFile


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.load(GGUFFile.open(smollm2_path))


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Tokenizer:
    return Tokenizer.load(GGUFFile.open(gemma_path))
