"""Run pytest with another build of the C++ core.

    python tools/pytest_with_core.py PATH/_core.so [PYTEST ARGUMENTS]

`make sanitize` uses it; tests that start another Python still get the installed core there.
"""

from __future__ import annotations

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

NAME = "foreword._core"


def load(path: Path) -> None:
    spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    load(Path(sys.argv[1]).resolve())
    sys.exit(pytest.main(sys.argv[2:]))
