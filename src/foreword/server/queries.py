"""Parameters in a request's URL."""

from __future__ import annotations

from fastapi import Request

from foreword.server.errors import ApiError


def count_in(request: Request, name: str, default: int, *, most: int) -> int:
    """Give the query parameter ``name``, a whole number from 1 to ``most``.

    Raises:
        ApiError: it is something else.
    """
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise ApiError(400, f"{name} must be in [1, {most}], not {text[:20]!r}", param=name)
    return int(text)
