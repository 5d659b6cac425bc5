"""Prompts that are computed before the server says that it is ready."""

from __future__ import annotations

import logging
from pathlib import Path

from foreword.errors import ConfigError, ForewordError
from foreword.server.cache import parse_warm, warm_up
from foreword.server.schema import WarmChatRequest, WarmRequest, parse_json
from foreword.server.service import Service

logger = logging.getLogger(__name__)

Bodies = list[WarmRequest | WarmChatRequest]


def read_prompts(path: str) -> Bodies:
    """Read a file of prompts: one text, or JSON Lines of bodies.

    Raises:
        ConfigError: it cannot be read; a line is no body, and which.
    """
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("warm_prompts", f"cannot read {path}: {error}") from error
    if not path.endswith(".jsonl"):
        return [parse_warm({"prompt": text})]
    bodies: Bodies = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                bodies.append(parse_warm(parse_json(line.encode())))
            except ForewordError as error:
                raise ConfigError("warm_prompts", f"{path}, line {number}: {error}") from error
    return bodies


async def warm_all(service: Service, bodies: Bodies) -> None:
    """Compute prompts one after the other; one that cannot be served is told and passed over."""
    for number, body in enumerate(bodies, start=1):
        try:
            await warm_up(service, body, body.cache_salt or "", ttl_s=body.ttl_s)
        except ForewordError as error:
            logger.warning("warm prompt %d is left out: %s", number, error)
