"""What foreword finds on this machine, and what it makes of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from foreword import __version__, _core
from foreword.backends.cpu.cores import usable_cores
from foreword.bench.machine import describe_machine
from foreword.config.machine import free_memory_bytes

SCHEMA = "foreword.env/1"

_PACKAGES = ("numpy", "jinja2", "fastapi", "uvicorn", "pydantic", "typer", "huggingface-hub")


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel table, and why it is or is not the one that runs.

    Attributes:
        missing: features that it wants and the machine lacks; empty: it can run.
    """

    isa: str
    missing: tuple[str, ...]
    chosen: bool

    @property
    def why(self) -> str:
        """The reason, for people."""
        if self.missing:
            return f"lacks {', '.join(self.missing)}"
        return "chosen: the fastest that can run here" if self.chosen else "can run"


def kernel_choices() -> list[KernelChoice]:
    """Every kernel table that was compiled in, fastest first; ``isa="auto"`` takes the chosen."""
    builds = _core.kernel_builds()
    chosen = next(isa for isa, missing in builds if not missing)
    return [KernelChoice(isa, tuple(missing), isa == chosen) for isa, missing in builds]


def describe_environment() -> dict[str, Any]:
    """Machine, processor features, kernels, cores, memory and versions, as JSON can hold them."""
    machine = describe_machine()
    return {
        "schema": SCHEMA,
        "version": __version__,
        "machine": machine,
        "cores": {
            "online": os.cpu_count(),
            "affinity": len(os.sched_getaffinity(0)),
            "used": usable_cores(),
        },
        "memory": {"total_bytes": machine["memory_bytes"], "free_bytes": free_memory_bytes()},
        "cpu_features": _core.cpu_features(),
        "kernels": [
            {"isa": k.isa, "chosen": k.chosen, "missing": list(k.missing), "why": k.why}
            for k in kernel_choices()
        ],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
