"""What import-linter cannot see: the compiled module, and the cost of the package's import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import foreword

SOURCE = Path(foreword.__file__).parent
MAY_USE_CORE = ("backends/cpu/", "bench/", "kv/", "text/", "weights/")


def imported_names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def test_only_those_who_may_import_the_compiled_module() -> None:
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "foreword._core" in imported_names(path)
    }
    assert users, "nobody imports the core: this test looks at the wrong place"
    assert not [user for user in users if not user.startswith(MAY_USE_CORE)]


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, foreword; print(*sorted(sys.modules))"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"numpy", "tokenizers", "fastapi", "typer", "foreword._core"} & set(modules)


def test_an_engine_needs_neither_numpy_nor_what_servers_need() -> None:
    """Start-up is part of the first answer's time, and half of it was numpy's import."""
    code = "import sys, foreword.engine.llm; print(*sorted(sys.modules))"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "foreword._core" in modules
    assert not {"numpy", "jinja2", "asyncio", "fastapi", "pydantic", "typer"} & set(modules)


def test_a_server_without_spans_does_not_load_what_they_need() -> None:
    code = "import sys, foreword.server.serve; print(*sorted(sys.modules))"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "foreword.server.monitoring" in modules
    assert not {"foreword.metrics.tracing", "opentelemetry.sdk"} & set(modules)


def test_a_subcommand_waits_for_no_other() -> None:
    code = """
import sys
from foreword.cli.main import app
app(["run", "--help"], standalone_mode=False)
print(*sorted(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stderr.split()
    assert "foreword.cli.run" in modules
    assert not {"foreword.cli.bench", "foreword.cli.serve", "foreword.cli.chat"} & set(modules)
