"""What this process may use of the machine."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_memory_bytes() -> int:
    """Memory that the process can still take: what is available, within its cgroup's limit."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):  # counts page cache that can be dropped
            available = int(line.split()[1]) * 1024
    limit = _read(_CGROUP / "memory.max").strip()
    used = _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available = min(available, int(limit) - int(used))
    return max(available, 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
