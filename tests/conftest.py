"""Model files, found the way a user finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreword.errors import ModelNotFoundError
from foreword.weights import registry


def _model_file(name: str) -> Path:
    try:
        return registry.resolve(name)
    except ModelNotFoundError as error:
        pytest.fail(
            f"{error}. Or run `make test`, which fetches what the tests need.", pytrace=False
        )


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _model_file("smollm2:135m")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    return _model_file("gemma3:270m")
