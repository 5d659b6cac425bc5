"""A machine with other things to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

_BUSY = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(5)
    while time.monotonic() < end: pass
    time.sleep(random.expovariate(3))
"""


@pytest.fixture(scope="module")
def busy_machine() -> Iterator[None]:
    """Run two processes that take a core each, now and then."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(2)]
    yield
    for process in busy:
        process.kill()
        process.wait()
