"""Which replica gets a request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

from foreword.sim.replica import Replica


class Router(Protocol):
    """Sees every request once, in the order of their coming, and picks a replica for it."""

    def choose(self) -> Replica:
        """Give the replica that the next request goes to."""
        ...


class RoundRobin:
    """Each in turn."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._turns = cycle(replicas)

    def choose(self) -> Replica:
        """See `Router.choose`."""
        return next(self._turns)


class LeastLoaded:
    """The one with the fewest prompt tokens to compute; the first of several."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas

    def choose(self) -> Replica:
        """See `Router.choose`."""
        return min(self._replicas, key=lambda replica: replica.num_uncached_tokens)


ROUTERS: dict[str, type[RoundRobin] | type[LeastLoaded]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
}
