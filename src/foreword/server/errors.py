"""Errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any

from foreword.errors import (
    ContextLengthError,
    EngineStoppedError,
    ForewordError,
    InvalidRequestError,
    OverloadedError,
    QueueTimeoutError,
    TemplateError,
)

_TYPES = {429: "rate_limit_error"}


class ApiError(ForewordError):
    """An error as the client sees it.

    Attributes:
        status: the HTTP status.
        type: OpenAI's class of error: ``invalid_request_error``, ``rate_limit_error`` (429) or
            ``server_error``.
        param: the parameter at fault, or None.
        code: a word for programs, or None.
        retry_after_s: after which time the same request is likely to be served; None: unknown.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        """What the response's head says of the error."""
        if self.retry_after_s is None:
            return {}
        return {"retry-after": str(max(1, ceil(self.retry_after_s)))}

    def body(self) -> dict[str, Any]:
        """Return the JSON object that tells of the error."""
        return {
            "error": {
                "message": str(self),
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def to_api_error(error: Exception) -> ApiError:
    """Translate an exception for the client; what foreword did not expect stays unexplained."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, ContextLengthError):
        return ApiError(400, message, param=error.param, code="context_length_exceeded")
    if isinstance(error, InvalidRequestError):
        return ApiError(400, message, param=error.param)
    if isinstance(error, TemplateError):
        return ApiError(400, message, param="messages", code="chat_template_error")
    if isinstance(error, OverloadedError):
        return ApiError(429, message, code="overloaded", retry_after_s=error.retry_after_s)
    if isinstance(error, QueueTimeoutError):
        return ApiError(503, message, code="queue_timeout", retry_after_s=error.retry_after_s)
    if isinstance(error, EngineStoppedError):
        return ApiError(503, message, code="shutting_down")
    if isinstance(error, ForewordError):
        return ApiError(500, message, code="engine_error")
    return ApiError(500, "internal error; the server's log says more")


@contextmanager
def spelled(names: Mapping[str, str]) -> Iterator[None]:
    """Let an `InvalidRequestError` name parameters as the caller spells them.

    Args:
        names: the engine's name → the caller's, where they differ.
    """
    try:
        yield
    except InvalidRequestError as error:
        ours = error.param or ""
        if ours in names:
            error.param = names[ours]
            error.args = (str(error).replace(f"{ours} must", f"{error.param} must"),)
        raise
