"""Probes and what foreword says of the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foreword import _core
from foreword.bench.environment import KernelChoice, describe_environment, kernel_choices
from foreword.bench.limits import Limits, Rate, measure_limits


def test_features_are_those_that_linux_sees() -> None:
    flags = Path("/proc/cpuinfo").read_text().split()
    features = _core.cpu_features()
    assert {name: name in flags for name in features} == features


def test_the_kernels_chosen_are_the_first_that_lack_nothing() -> None:
    choices = kernel_choices()
    assert [choice.isa for choice in choices if not choice.missing] == _core.available_isas()
    (chosen,) = (choice for choice in choices if choice.chosen)
    assert chosen.isa == _core.available_isas()[0]
    assert choices[-1] == KernelChoice("reference", (), chosen.isa == "reference")
    for choice in choices:
        assert all(not _core.cpu_features()[feature] for feature in choice.missing)
    assert KernelChoice("avx512", ("avx512f", "fma"), False).why == "lacks avx512f, fma"


def test_limits_are_those_of_a_machine_that_exists() -> None:
    limits = measure_limits(threads=1)
    assert set(limits.int8) <= set(_core.available_isas())
    for rate in (*limits.int8.values(), *limits.float32.values()):
        assert 1e8 < rate.one < 5e12
    assert 2e8 < limits.read.one < 5e11
    if {"avx512_vnni", "avx2"} <= set(limits.int8):  # one instruction does the work of three
        tries = 1  # a busy machine may have slowed either one
        while limits.int8["avx512_vnni"].one <= 1.2 * limits.int8["avx2"].one:
            tries += 1
            assert tries < 10
            limits = limits.better_of(measure_limits(threads=1))
    assert json.loads(json.dumps(limits.to_json()))["threads"] == 1


def test_a_limit_is_found_by_arithmetic_and_kernel_table() -> None:
    limits = Limits(2, {"avx2": Rate(1, 2)}, {"avx512": Rate(3, 4)}, Rate(5, 6))
    assert limits.arithmetic("int8", "avx2") == Rate(1, 2)
    assert limits.arithmetic("float32", "avx512") == Rate(3, 4)
    assert limits.arithmetic("float32", "avx2") is None


def test_the_better_of_two_probes_counts() -> None:
    first = Limits(2, {"avx2": Rate(1, 9)}, {"avx2": Rate(3, 3)}, Rate(5, 5))
    second = Limits(2, {"avx2": Rate(2, 8)}, {"avx2": Rate(1, 4)}, Rate(6, 4))
    expected = Limits(2, {"avx2": Rate(2, 9)}, {"avx2": Rate(3, 4)}, Rate(6, 5))
    assert first.better_of(second) == second.better_of(first) == expected


@pytest.mark.parametrize(("threads", "seconds"), [(0, 0.1), (1, 0.0), (1, -1.0), (1, float("nan"))])
def test_a_probe_without_thread_or_time_is_refused(threads: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="needs a thread and time"):
        _core.arithmetic_rates(threads, seconds)
    with pytest.raises(ValueError, match="needs a thread and time"):
        _core.ReadProbe(2**20).rate(threads, seconds)


def test_the_command_tells_it_all() -> None:
    code = "from foreword.cli.main import main; main()"
    command = [sys.executable, "-c", code, "env"]
    one_core = str(min(os.sched_getaffinity(0)))
    shown = subprocess.check_output(["taskset", "-c", one_core, *command], text=True)
    assert "1 used" in shown
    assert "chosen: the fastest" in shown
    found = json.loads(subprocess.check_output([*command, "--json"], text=True))
    expected = describe_environment()
    assert found["schema"] == "foreword.env/1"
    for part in ("cores", "cpu_features", "kernels", "packages"):
        assert found[part] == expected[part]
