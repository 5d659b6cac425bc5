"""foreword: an LLM inference engine built around time to first token."""

from __future__ import annotations

__version__ = "0.1.0"
