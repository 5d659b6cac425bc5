"""A running server, asked from the command line."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

from foreword.bench.load.target import Target
from foreword.errors import ServerError

_TIMEOUT_S = 30.0


class Remote:
    """Asks one server for JSON.

    Raises:
        ConfigError: the URL is none.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._target = Target(url=url, api_key=api_key)

    def get(self, path: str) -> Any:
        """Return what the server says at ``path``, which is quoted already.

        Raises:
            ServerError: it cannot be reached, refuses, or does not answer with a JSON object.
        """
        try:
            status, body = self._ask(path)
        except (OSError, HTTPException) as error:
            raise ServerError(
                f"{self._target.url}: {error}. Is `foreword serve` running there?"
            ) from error
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServerError(
                f"{self._target.url} answers {status} and no JSON object: it is none "
                "of foreword's servers"
            )
        if status != 200:
            told = answer.get("error")
            reason = told.get("message") if isinstance(told, dict) else body[:200].decode()
            raise ServerError(f"{self._target.url} answers {status}: {reason}")
        return answer

    def _ask(self, path: str) -> tuple[int, bytes]:
        target = self._target
        kind = HTTPSConnection if target.tls else HTTPConnection
        connection = kind(target.host, target.port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", target.path(path), headers=target.headers())
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
