"""How many cores the process may use, under made-up control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foreword.backends.cpu.cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2, V1 = "0::/a/b\n", "4:cpu,cpuacct:/a/b\n3:memory:/a/b\n"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": V2}, 8),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "garbage\n"}, 8),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/a/b/cpu.max": "9900000 100000\n"}, 8),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_quotas(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert usable_cores(write(tmp_path, files)) == cores
