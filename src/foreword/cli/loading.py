"""Get a model ready, fetching it first where it is not here yet."""

from __future__ import annotations

from pathlib import Path

from foreword.config.engine import EngineOptions
from foreword.engine.build import build_engine
from foreword.engine.engine import Engine
from foreword.errors import ModelNotFoundError
from foreword.weights import registry


def ensure_model(model: str) -> Path:
    """Return the model's file, fetched with a progress bar if need be.

    Raises:
        ModelNotFoundError: no such model can be had.
        DownloadError: it could not be fetched.
    """
    try:
        return registry.resolve(model)
    except ModelNotFoundError:
        return pull_with_progress(model)


def load_engine(options: EngineOptions) -> Engine:
    """`build_engine`, after `ensure_model`."""
    ensure_model(options.model)
    return build_engine(options)


def pull_with_progress(model: str, *, verify: bool = False) -> Path:
    """`registry.pull` with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(model, total=None)

        def show(done_bytes: int, total_bytes: int | None) -> None:
            bars.update(bar, completed=done_bytes, total=total_bytes)

        return registry.pull(model, show, verify=verify)
