"""Options as ``name=value`` words, for commands that need two configurations at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from foreword.errors import ConfigError

_SWITCHES = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


def parse_overrides(words: Iterable[str], config: type) -> dict[str, Any]:
    """Read ``name=value`` words as fields of a dataclass; ``none`` leaves it to foreword.

    Raises:
        ConfigError: no such option, or a value that is none of it.
    """
    hints = get_type_hints(config)
    names = {field.name for field in fields(config)}
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in names:
            raise ConfigError(name, f"{word!r} is not name=value with one of {sorted(names)}")
        values[name] = _parse(name, text.strip(), hints[name])
    return values


def _parse(name: str, text: str, hint: Any) -> Any:
    kinds = get_args(hint) or (hint,)
    if type(None) in kinds and text == "none":
        return None
    try:
        if bool in kinds:
            return _SWITCHES[text.lower()]
        if get_origin(hint) is tuple:
            return tuple(map(int, text.split(",")))
        return next((kind(text) for kind in (int, float) if kind in kinds), text)
    except (KeyError, ValueError):
        raise ConfigError(name, f"{text!r} is not a value of it") from None
