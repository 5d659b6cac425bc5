"""Models by name: what is here, and how to get what is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foreword.errors import ModelNotFoundError
from foreword.weights.catalog import CATALOG, CatalogModel, find

HUB_PREFIX = "hf:"

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all: first for the download, then for unpacking it."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of `list_models`. ``path`` is None where the model is not here yet."""

    name: str
    aliases: tuple[str, ...]
    size_bytes: int
    license: str
    path: Path | None


def cache_folder() -> Path:
    """``$FOREWORD_CACHE``, else ``$XDG_CACHE_HOME/foreword``, else ``~/.cache/foreword``."""
    if own := os.environ.get("FOREWORD_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "foreword"
    return Path.home() / ".cache" / "foreword"


def list_models(*, catalog: Sequence[CatalogModel] = CATALOG) -> list[ModelEntry]:
    """Every model that has a name, and where it is."""
    return [ModelEntry(m.name, m.aliases, m.size_bytes, m.license, _present(m)) for m in catalog]


def resolve(name_or_path: str, *, catalog: Sequence[CatalogModel] = CATALOG) -> Path:
    """Find a model's file on this machine; touches no network and reads no file.

    Args:
        name_or_path: a name or alias from `list_models`, ``hf:org/repo/file.gguf``, or a path.
        catalog: the models that have names.

    Raises:
        ModelNotFoundError: it is not here; says how to get it, or what names there are.
    """
    if name_or_path.startswith(HUB_PREFIX):
        from foreword.weights import hub

        return hub.cached(name_or_path)
    model = find(name_or_path, catalog)
    if model is None:
        return _existing_file(name_or_path, catalog)
    path = _present(model)
    if path is None:
        raise ModelNotFoundError(
            f"{model.name} is not on this machine yet: foreword pull {model.name}"
        )
    return path


def pull(
    name: str,
    progress: Progress | None = None,
    *,
    verify: bool = False,
    catalog: Sequence[CatalogModel] = CATALOG,
) -> Path:
    """Fetch a model unless it is here, and return its file.

    A named model appears in the cache folder whole and with the right SHA-256, or not at all. If
    another process is fetching it, waits for that one. A model that is here costs a look at its
    size and no network.

    Args:
        name: as in `resolve`; a path must exist.
        progress: told about bytes. The hub's client shows its own progress instead.
        verify: also read a file that is here and compare its SHA-256; a damaged one is replaced.
        catalog: the models that have names.

    Raises:
        ModelNotFoundError: there is no such model.
        DownloadError: it could not be fetched: offline, no space, wrong digest.
    """
    if name.startswith(HUB_PREFIX):
        from foreword.weights import hub

        return hub.pull(name)
    model = find(name, catalog)
    if model is None:
        return _existing_file(name, catalog)
    from foreword.weights import fetch

    return fetch.ensure(model, _path(model), progress, verify=verify)


def _path(model: CatalogModel) -> Path:
    return cache_folder() / "models" / model.filename


def _present(model: CatalogModel) -> Path | None:
    path = _path(model)
    try:
        return path if path.stat().st_size == model.size_bytes else None
    except OSError:
        return None


def _existing_file(path: str, catalog: Sequence[CatalogModel]) -> Path:
    if os.path.isfile(path):
        return Path(path)
    if os.sep in path or path.endswith(".gguf"):
        raise ModelNotFoundError(f"there is no file {path}")
    names = ", ".join(model.name for model in catalog)
    raise ModelNotFoundError(
        f"there is no model called {path!r}; there are {names}, any path to a .gguf file, "
        f"and {HUB_PREFIX}org/repo/file.gguf"
    )
