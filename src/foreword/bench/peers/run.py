"""From engine options to a comparison: finds the peers, starts ours beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from foreword.backends.cpu.cores import usable_cores
from foreword.bench.limits import measure_limits
from foreword.bench.machine import describe_machine, now_text
from foreword.bench.peers.base import Peer
from foreword.bench.peers.compare import OURS, CompareSettings, Comparison, run_comparison
from foreword.bench.peers.find import PeerSetup, find_peers
from foreword.bench.peers.worker import WorkerPeer
from foreword.bench.prompts import PromptSource, corpus_text
from foreword.bench.work import Work
from foreword.config.engine import EngineOptions
from foreword.models.load import load_spec
from foreword.text.tokenizer import Tokenizer
from foreword.weights.gguf import GGUFFile


def run_peers(
    options: EngineOptions,
    model: Path,
    places: Mapping[str, Path],
    settings: CompareSettings,
    *,
    models: Mapping[str, Path],
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare ours with every engine that is here.

    Args:
        options: of ours; its threads are everybody's.
        model: the file that all of them load, but those that ``models`` names.
        places: see `find_peers`.
        models: by name: the same weights in the engine's own format.

    Raises:
        ConfigError: a peer that does not exist.
        PeerError: ours failed.
    """
    machine = describe_machine()
    num_threads = options.num_threads or usable_cores()
    limits = measure_limits(num_threads)
    setup = PeerSetup(model, models, num_threads, settings.max_tokens)
    found, absent = find_peers(setup, places)
    file = GGUFFile.open(model)
    tokens = Tokenizer.load(file).encode(corpus_text(), add_bos=False)
    engines = run_comparison(
        {OURS: lambda: _ours(options, model, num_threads), **found},
        PromptSource(tokens),
        settings,
        progress=progress,
    )
    return Comparison(
        created_at=now_text(),
        model=options.model,
        machine=machine,
        limits=limits.better_of(measure_limits(num_threads)),
        settings=settings,
        work=Work.of(file, load_spec(file)),
        engines=engines,
        absent=absent,
    )


def _ours(options: EngineOptions, model: Path, num_threads: int) -> Peer:
    """Ours in a process like the others'."""
    given: dict[str, Any] = {
        field.name: value
        for field in fields(EngineOptions)
        if (value := getattr(options, field.name)) != field.default
        and field.name not in ("model", "num_threads")
    }
    config = {"model": str(model), "num_threads": num_threads, "options": given}
    return WorkerPeer(OURS, Path(sys.executable), config)
