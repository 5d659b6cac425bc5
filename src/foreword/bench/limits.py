"""What this machine can do at most, measured: multiply-adds and bytes read per second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foreword import _core
from foreword.backends.cpu.cores import usable_cores

# The best of many bursts counts: whoever else runs here can only make one slower, and a burst is
# shorter than a turn on a core, so that some are whole.
_BURST_S = 0.002
_BURSTS = 40
_READ_BYTES = 256 * 2**20  # more than caches hold, the largest servers' aside


@dataclass(frozen=True, slots=True)
class Rate:
    """Something per second: on one thread, and on all of them together."""

    one: float
    all: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds on what kernels can reach here.

    Attributes:
        threads: how many "all" are.
        int8: by kernel table: multiply-adds of bytes that are summed in 32 bits.
        float32: by kernel table: fused multiply-adds. Both without any load or store.
        read: bytes read from memory.
    """

    threads: int
    int8: Mapping[str, Rate]
    float32: Mapping[str, Rate]
    read: Rate

    def arithmetic(self, kind: str, isa: str) -> Rate | None:
        """Multiply-adds of ``kind`` (int8 or float32) of a kernel table; None where unmeasured."""
        return {"int8": self.int8, "float32": self.float32}[kind].get(isa)

    def better_of(self, other: Limits) -> Limits:
        """The higher of two measurements of the same machine: whoever else ran slowed the other."""
        return Limits(
            self.threads,
            {isa: _higher(rate, other.int8[isa]) for isa, rate in self.int8.items()},
            {isa: _higher(rate, other.float32[isa]) for isa, rate in self.float32.items()},
            _higher(self.read, other.read),
        )

    def to_json(self) -> dict[str, Any]:
        """Give them as plain data, in units per second."""
        return {
            "threads": self.threads,
            "int8_mac": {isa: _rate_to_json(rate) for isa, rate in self.int8.items()},
            "float32_mac": {isa: _rate_to_json(rate) for isa, rate in self.float32.items()},
            "read_bytes": _rate_to_json(self.read),
        }


def measure_limits(threads: int | None = None) -> Limits:
    """Probe the machine; takes about a second.

    Args:
        threads: None: as many as the process has cores.

    Raises:
        MemoryError: no room for the 256 MiB that are read.
    """
    threads = threads or usable_cores()
    one, all_ = _arithmetic(1), _arithmetic(threads)
    rates = {key: Rate(one[key], all_[key]) for key in one}
    memory = _core.ReadProbe(_READ_BYTES)
    return Limits(
        threads,
        int8={isa: rate for (kind, isa), rate in rates.items() if kind == "int8"},
        float32={isa: rate for (kind, isa), rate in rates.items() if kind == "float32"},
        read=Rate(
            _best(lambda: memory.rate(1, _BURST_S)), _best(lambda: memory.rate(threads, _BURST_S))
        ),
    )


def _arithmetic(threads: int) -> dict[tuple[str, str], float]:
    best: dict[tuple[str, str], float] = {}
    for _ in range(_BURSTS):
        for kind, isa, rate in _core.arithmetic_rates(threads, _BURST_S):
            best[kind, isa] = max(rate, best.get((kind, isa), 0.0))
    return best


def _best(burst: Callable[[], float]) -> float:
    return max(burst() for _ in range(_BURSTS))


def _higher(a: Rate, b: Rate) -> Rate:
    return Rate(max(a.one, b.one), max(a.all, b.all))


def _rate_to_json(rate: Rate) -> dict[str, int]:
    return {"one_thread": round(rate.one), "all_threads": round(rate.all)}
