"""Command-line options made from the configuration classes, so that they are written down once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

_Result = TypeVar("_Result")


def takes(config: type, *, panel: str, skip: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Give a command one option for each field of a configuration class.

    The decorated function receives an instance of ``config`` as its first argument (stacked: one
    each, the lowest decorator's first); its other parameters stay as they are. A field becomes
    ``--its-name`` with the class's help text, type and default; a boolean also ``--no-its-name``.

    Args:
        panel: heading that the options stand under in ``--help``.
        skip: fields that get no option (the command takes them in another way).
    """
    hints = get_type_hints(config)
    chosen = [field for field in fields(config) if field.name not in skip]

    def decorate(command: Callable[..., _Result]) -> Callable[..., _Result]:
        own = inspect.signature(command, eval_str=True)
        _, *rest = own.parameters.values()

        @functools.wraps(command)
        def wrapper(*configs: Any, **arguments: Any) -> _Result:
            values = {field.name: arguments.pop(field.name) for field in chosen}
            return command(config(**values), *configs, **arguments)

        parameters = [*rest, *(_parameter(field, hints[field.name], panel) for field in chosen)]
        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _parameter(field: Field[Any], hint: Any, panel: str) -> inspect.Parameter:
    flag = "--" + field.name.replace("_", "-")
    if hint in (bool, bool | None):
        flag = f"{flag}/--no-{flag[2:]}"
    names = [flag, "-m"] if field.name == "model" else [flag]
    shown = typer.Option(*names, help=field.metadata["help"], rich_help_panel=panel)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[hint, shown],
    )
