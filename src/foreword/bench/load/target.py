"""The server under load, and how a request is written for it."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from foreword.bench.load.plan import PlannedRequest
from foreword.core.request import NOT_URGENT, Urgency
from foreword.errors import ConfigError

ENDPOINTS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that speaks OpenAI's API, and what each request to it carries besides its prompt.

    Attributes:
        url: where it is; ``/v1`` at the end may be there or not.
        model: the name to ask for.
        endpoint: ``"chat"`` or ``"completions"``.
        token_ids: send prompts to completions as token ids where they are known.
        extra: more members of the body; the server must know them.

    Raises:
        ConfigError: the URL is none, or there is no such endpoint.
    """

    url: str
    model: str | None = None
    endpoint: str = "chat"
    api_key: str | None = None
    token_ids: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.endpoint not in ENDPOINTS:
            raise ConfigError("endpoint", f"must be one of {sorted(ENDPOINTS)}")
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is no number
            usable = False
        if not usable:
            raise ConfigError("url", f"{self.url!r} is no URL such as http://127.0.0.1:8000")

    @property
    def tls(self) -> bool:
        """Whether to speak TLS."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port, by default the scheme's."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    def path(self, path: str) -> str:
        """Give the path on the server of one that starts at the API's root."""
        return urlsplit(self.url).path.rstrip("/").removesuffix("/v1") + path

    def headers(self) -> dict[str, str]:
        """Give what every request's head carries."""
        headers = {"Host": urlsplit(self.url).netloc.rpartition("@")[2]}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def body(self, request: PlannedRequest) -> dict[str, Any]:
        """Give the body for a request; greedy, streamed, with usage."""
        body: dict[str, Any] = {} if self.model is None else {"model": self.model}
        if self.endpoint == "chat":
            body["messages"] = request.chat_prompt()
        else:
            prompt = request.plain_prompt()
            body["prompt"] = (self.token_ids and prompt.token_ids) or prompt.text
        return body | {
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_urgency(request.urgency),
            **self.extra,
        }

    def payload(self, request: PlannedRequest) -> bytes:
        """Give the whole HTTP request as it goes over the wire."""
        body = json.dumps(self.body(request)).encode()
        headers = {
            **self.headers(),
            "Accept": "text/event-stream",
            "Connection": "close",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }
        lines = [f"POST {self.path(ENDPOINTS[self.endpoint])} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def find(self) -> tuple[str, int]:
        """Give the address and port that answer, so that no request has to look them up.

        Falls back to the first address where none answers: each request then says why.

        Raises:
            ConfigError: the name has no address.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError("url", f"{self.host} has no address: {error}") from error
        addresses = [(str(entry[4][0]), self.port) for entry in found]
        for address in addresses:
            try:
                socket.create_connection(address, timeout=5.0).close()
            except OSError:
                continue
            return address
        return addresses[0]


def _urgency(urgency: Urgency) -> dict[str, Any]:
    """What is asked for, so that servers which know nothing of it need not."""
    return {
        name: value for name, value in asdict(urgency).items() if value != getattr(NOT_URGENT, name)
    }
