"""Kernels of every instruction set that this machine can run."""

from __future__ import annotations

import numpy as np
import pytest

from foreword import _core
from foreword.bench.cases import ISAS


@pytest.fixture(params=ISAS)
def kernels(request: pytest.FixtureRequest) -> _core.Kernels:
    if request.param not in _core.available_isas():
        pytest.skip(f"this machine has no {request.param}")
    return _core.Kernels(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
