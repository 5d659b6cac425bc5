"""Model files, found the way a user finds them; and how hypothesis draws its examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from foreword.errors import ModelNotFoundError
from foreword.weights import registry

# The same examples in every run: the suite fails for a change, and not for the luck of a draw.
# `make explore` draws others. Neither asks how long an example took, on a machine that may be busy.
settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")


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
