"""How to simulate."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.config.option import option
from foreword.errors import ConfigError
from foreword.sim.router import ROUTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """How to simulate; each field's ``help`` says what it means.

    Raises:
        ConfigError: a value that cannot work.
    """

    num_prompts: int = option(1000, "Requests; a trace may have fewer.")
    request_rate: float | None = option(
        None, "Requests a second, sent when due. Default: as soon as there is room."
    )
    burstiness: float = option(
        1.0, "Shape of the gaps: 1 is Poisson, below comes in clusters, inf is even."
    )
    max_concurrency: int | None = option(
        None, "Requests at once. Default: no limit where requests have times, else 1."
    )
    replicas: int = option(1, "Servers, all alike.")
    router: str = option("round-robin", f"Who gets a request: {', '.join(ROUTERS)}.")
    seed: int = option(0, "The same seed makes the same requests.")
    noise_seed: int = option(0, "The same one gives the steps the same noise.")

    def __post_init__(self) -> None:
        for name in ("num_prompts", "replicas"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"must be at least 1, not {getattr(self, name)}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ConfigError("max_concurrency", f"must be at least 1, not {self.max_concurrency}")
        if self.router not in ROUTERS:
            raise ConfigError("router", f"{self.router!r} is none of {', '.join(ROUTERS)}")
