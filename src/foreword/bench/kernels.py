"""Single kernels on one thread, timed on the shapes of real models and held against the limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foreword import __version__, _core
from foreword.bench.cases import TOKENS
from foreword.bench.kernel_tasks import KERNELS, Task, kernel_tasks
from foreword.bench.limits import Limits, measure_limits
from foreword.bench.machine import describe_machine, now_text
from foreword.errors import ConfigError

SCHEMA = "foreword.bench.kernels/1"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What a task took at best: others on the machine can only make it slower.

    Attributes:
        seconds: of one call; for the others see `Task`.
    """

    kernel: str
    shape: str
    tokens: int
    macs: int
    num_bytes: int
    arithmetic: str
    seconds: float

    @classmethod
    def of(cls, task: Task, seconds: float) -> KernelTime:
        """Take over what ``task`` says of itself, without its operands."""
        return cls(
            task.kernel,
            task.shape,
            task.tokens,
            task.macs,
            task.num_bytes,
            task.arithmetic,
            seconds,
        )

    @property
    def mac_s(self) -> float:
        """Multiply-adds per second."""
        return self.macs / self.seconds

    @property
    def bytes_s(self) -> float:
        """Bytes per second."""
        return self.num_bytes / self.seconds

    def arithmetic_share(self, limits: Limits, isa: str) -> float | None:
        """Of the multiply-adds per second that registers alone allow; None where unmeasured."""
        limit = limits.arithmetic(self.arithmetic, isa)
        return self.mac_s / limit.one if limit and self.macs else None

    def read_share(self, limits: Limits) -> float:
        """Of the bytes per second that memory gives; over 1 where caches do."""
        return self.bytes_s / limits.read.one


@dataclass(frozen=True, slots=True)
class KernelReport:
    """All tasks on one kernel table."""

    created_at: str
    machine: dict[str, Any]
    isa: str
    limits: Limits
    times: tuple[KernelTime, ...]

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data; ``schema`` names the format."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "machine": self.machine,
            "isa": self.isa,
            "limits": self.limits.to_json(),
            "times": [
                {
                    **asdict(time),
                    "arithmetic_share": time.arithmetic_share(self.limits, self.isa),
                    "read_share": time.read_share(self.limits),
                }
                for time in self.times
            ],
        }


def run_kernels(
    *,
    isa: str = "auto",
    kernels: Sequence[str] = KERNELS,
    tokens: Sequence[int] = TOKENS,
    budget_s: float = 0.03,
    progress: Callable[[int], None] | None = None,
) -> KernelReport:
    """Time kernels, one after the other.

    Args:
        isa: the kernel table; ``auto`` is the fastest.
        kernels: some of `KERNELS`.
        budget_s: seconds for each task, preparing it aside.
        progress: called with the number of tasks done.

    Raises:
        ConfigError: no such kernel or kernel table.
    """
    for kernel in kernels:
        if kernel not in KERNELS:
            raise ConfigError("kernels", f"{kernel!r} is not one of {', '.join(KERNELS)}")
    available = _core.available_isas()
    if isa != "auto" and isa not in available:
        raise ConfigError("isa", f"{isa!r} is not one of auto, {', '.join(available)}")
    isa = available[0] if isa == "auto" else isa
    machine, limits = describe_machine(), measure_limits(1)
    times: list[KernelTime] = []
    for task in kernel_tasks(_core.Kernels(isa), kernels, tokens):
        times.append(KernelTime.of(task, best_seconds(task.run, budget_s)))
        if progress is not None:
            progress(len(times))
    return KernelReport(
        created_at=now_text(),
        machine=machine,
        isa=isa,
        limits=limits.better_of(measure_limits(1)),
        times=tuple(times),
    )


def best_seconds(
    run: Callable[[], None], budget_s: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The shortest call of those that fit into ``budget_s``; at least three, and one to warm up."""
    run()
    best, spent, calls = float("inf"), 0.0, 0
    while spent < budget_s or calls < 3:
        began_s = clock()
        run()
        took = clock() - began_s
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best
