"""Which engines are here. Nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from foreword.bench.peers.base import Peer
from foreword.bench.peers.llama_cpp import LlamaBench, LlamaServer
from foreword.bench.peers.worker import WorkerPeer
from foreword.errors import ConfigError

_MODULES = {"openvino": "openvino_genai", "vllm": "vllm"}
_PROGRAMS = ("llama-bench", "llama-server")
NAMES = (*_MODULES, *_PROGRAMS)


@dataclass(frozen=True, slots=True)
class PeerSetup:
    """What every engine is given.

    Attributes:
        models: what engines load instead of ``model``, by name.
        max_tokens: of a prompt and its continuation.
    """

    model: Path
    models: Mapping[str, Path]
    num_threads: int
    max_tokens: int

    def model_of(self, name: str) -> Path:
        """What an engine loads."""
        return self.models.get(name, self.model)


Start = Callable[[], Peer]


def find_peers(
    setup: PeerSetup, places: Mapping[str, Path]
) -> tuple[dict[str, Start], dict[str, str]]:
    """Look for each engine in its place, else in this Python or on ``PATH``.

    Args:
        places: by name: the Python that has the engine, or the program.

    Returns:
        How to start those that are here, and why each of the others cannot be.

    Raises:
        ConfigError: a place or a model for an engine that does not exist.
    """
    for name in (*places, *setup.models):
        if name not in NAMES:
            raise ConfigError("peer", f"{name!r} is not one of {', '.join(NAMES)}")
    found: dict[str, Start] = {}
    absent: dict[str, str] = {}
    for name, module in _MODULES.items():
        python = places.get(name, Path(sys.executable))
        if _has_module(python, module):
            found[name] = _worker(name, python, setup)
        else:
            absent[name] = f"{python} has no module {module}"
    for name in _PROGRAMS:
        program = shutil.which(places.get(name, name))
        if program is None:
            absent[name] = f"{places.get(name, name)} is no program that can be run"
        else:
            found[name] = _program(name, Path(program), setup)
    return found, absent


def _worker(name: str, python: Path, setup: PeerSetup) -> Start:
    config = {
        "model": str(setup.model_of(name)),
        "num_threads": setup.num_threads,
        "max_tokens": setup.max_tokens,
    }
    return lambda: WorkerPeer(name, python, config)


def _program(name: str, program: Path, setup: PeerSetup) -> Start:
    model = setup.model_of(name)
    if name == "llama-bench":
        return lambda: LlamaBench(program, model, setup.num_threads)
    return lambda: LlamaServer(program, model, setup.num_threads, setup.max_tokens)


def _has_module(python: Path, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0
