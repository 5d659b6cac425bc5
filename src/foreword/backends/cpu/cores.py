"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """Cores that affinity and control groups leave to the process, rounded down, at least one.

    Reads cgroup v2 (``cpu.max`` of the group and of each of its ancestors) and v1
    (``cpu.cfs_quota_us``); what cannot be read is no limit. ``root`` stands for ``/`` in tests.
    """
    cores = float(len(os.sched_getaffinity(0)))
    return max(1, int(min([cores, *_quotas(root)])))


def _quotas(root: Path) -> list[float]:
    """The CPU quotas that apply, in cores."""
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        group = Path(path.strip().lstrip("/"))
        if not controllers:  # version 2
            for folder in (group, *group.parents):
                quotas.append(_read(root / "sys/fs/cgroup" / folder / "cpu.max").split())
        elif "cpu" in controllers.split(","):
            for folder in (group, *group.parents):
                base = root / "sys/fs/cgroup/cpu" / folder
                quotas.append(
                    [
                        *_read(base / "cpu.cfs_quota_us").split(),
                        *_read(base / "cpu.cfs_period_us").split(),
                    ]
                )
    limits = []
    for quota in quotas:
        try:
            used, period = (int(word) for word in quota)
        except ValueError:  # absent, or "max": no limit
            continue
        if used > 0 and period > 0:
            limits.append(used / period)
    return limits


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
