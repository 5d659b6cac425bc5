"""Settings that explain themselves."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    """Return a dataclass field with a default and the words that ``--help`` shows for it."""
    return field(default=default, metadata={"help": help})
