"""How the HTTP server listens, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.option import option
from foreword.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of `foreword serve`; each field's ``help`` says what it means.

    Raises:
        ConfigError: a value that cannot work.
    """

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = option(8000, "Port to listen on; 0 for any free one.")
    api_key: list[str] | None = option(  # noqa: RUF009  # not mutable: None
        None, "Key that clients must send as a bearer token. May be given several times."
    )
    served_model_name: list[str] | None = option(  # noqa: RUF009  # as above
        None, "Name that requests give in `model`. May be given several times. Default: MODEL."
    )
    max_body_bytes: int = option(16 * 2**20, "Bytes that a request's body may have.")
    max_held_body_bytes: int | None = option(
        None,
        "Bytes that the bodies of all requests that are being served may have; more get 429. "
        "Default: 16 times --max-body-bytes.",
    )
    drain_timeout: float = option(
        30.0, "Seconds that running requests may go on after SIGTERM before they are ended."
    )
    request_history: int = option(
        10_000, "Latest requests that can be asked where their time went (`foreword explain`)."
    )
    metrics: bool = option(True, "Serve /metrics, /v1/stats and /dashboard.")
    otlp_traces_endpoint: str | None = option(
        None, "Send a span for each request here by OTLP over HTTP, as http://HOST:4318/v1/traces."
    )
    cache_isolation: str = option(
        "none", "Who shares the prefix cache: none (everybody), or api-key (each key has its own)."
    )
    warm_prompts: str | None = option(
        None,
        "File of prompts to compute before /readyz says yes: one text, or .jsonl with bodies of "
        "/v1/cache/warm and, where they have ttl_s, of /v1/cache/pin.",
    )
    keep_alive_timeout: int = option(
        75, "Seconds that an idle connection stays open for the client's next request."
    )

    @property
    def held_body_bytes(self) -> int:
        """Bytes that all bodies together may have."""
        if self.max_held_body_bytes is None:
            return 16 * self.max_body_bytes
        return self.max_held_body_bytes

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError("port", f"must be in [0, 65535], not {self.port}")
        if self.max_body_bytes < 1:
            raise ConfigError("max_body_bytes", f"must be at least 1, not {self.max_body_bytes}")
        if self.held_body_bytes < self.max_body_bytes:
            raise ConfigError(
                "max_held_body_bytes",
                f"must be at least --max-body-bytes ({self.max_body_bytes}), not "
                f"{self.max_held_body_bytes}",
            )
        if not 0 <= self.drain_timeout < float("inf"):
            raise ConfigError("drain_timeout", f"must be 0 or more, not {self.drain_timeout}")
        if self.keep_alive_timeout < 0:
            raise ConfigError(
                "keep_alive_timeout", f"must be 0 or more, not {self.keep_alive_timeout}"
            )
        if self.request_history < 0:
            raise ConfigError("request_history", f"must be 0 or more, not {self.request_history}")
        endpoint = self.otlp_traces_endpoint
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ConfigError("otlp_traces_endpoint", f"must be an http address, not {endpoint!r}")
        if self.cache_isolation not in ("none", "api-key"):
            raise ConfigError(
                "cache_isolation", f"must be none or api-key, not {self.cache_isolation!r}"
            )
        if self.cache_isolation == "api-key" and not self.api_key:
            raise ConfigError("cache_isolation", "api-key needs at least one --api-key")
        if any(not key for key in self.api_key or ()):
            raise ConfigError("api_key", "must not be empty")
