"""foreword: an LLM inference engine built around time to first token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foreword.config.engine import EngineOptions
    from foreword.core.params import SamplingParams
    from foreword.core.request import FinishReason
    from foreword.engine.async_engine import AsyncEngine
    from foreword.engine.build import build_engine
    from foreword.engine.llm import LLM
    from foreword.engine.outputs import CompletionOutput, RequestDelta, RequestOutput
    from foreword.errors import ForewordError

__version__ = "0.1.0"

# Public names, and where they live: resolved on first use, so that `import foreword` stays quick.
_PUBLIC = {
    "LLM": "foreword.engine.llm",
    "AsyncEngine": "foreword.engine.async_engine",
    "CompletionOutput": "foreword.engine.outputs",
    "EngineOptions": "foreword.config.engine",
    "FinishReason": "foreword.core.request",
    "ForewordError": "foreword.errors",
    "RequestDelta": "foreword.engine.outputs",
    "RequestOutput": "foreword.engine.outputs",
    "SamplingParams": "foreword.core.params",
    "build_engine": "foreword.engine.build",
}

__all__ = [
    "LLM",
    "AsyncEngine",
    "CompletionOutput",
    "EngineOptions",
    "FinishReason",
    "ForewordError",
    "RequestDelta",
    "RequestOutput",
    "SamplingParams",
    "build_engine",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
