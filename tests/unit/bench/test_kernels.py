from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from foreword import _core
from foreword.bench import kernel_tasks as tasks_module
from foreword.bench.cases import LAYER_MATRICES, OUTPUT_MATRICES
from foreword.bench.kernel_tasks import KERNELS, Task, kernel_tasks
from foreword.bench.kernels import KernelTime, best_seconds, run_kernels
from foreword.bench.limits import Limits, Rate
from foreword.bench.table import kernels_tables
from foreword.errors import ConfigError

TABLE = _core.Kernels("auto")


def test_the_shortest_call_counts_but_the_first_warms_up() -> None:
    now = 0.0
    took: Iterator[float] = iter([0.001, 5.0, 3.0, 4.0, 2.0])

    def run() -> None:
        nonlocal now
        now += next(took)

    assert best_seconds(run, budget_s=11.0, clock=lambda: now) == pytest.approx(3.0)
    assert next(took) == 2.0  # the budget was spent after three


def test_a_time_is_held_against_one_threads_limits() -> None:
    limits = Limits(4, {"avx2": Rate(1e9, 9e9)}, {"avx2": Rate(1e8, 9e8)}, Rate(1e6, 9e6))
    time = KernelTime.of(Task("int8_matmul", "s", 2, lambda: None, 10**6, 1000, "int8"), 0.002)
    assert (time.mac_s, time.bytes_s) == (5e8, 5e5)
    assert (time.arithmetic_share(limits, "avx2"), time.read_share(limits)) == (0.5, 0.5)
    assert time.arithmetic_share(limits, "portable") is None
    copy = KernelTime.of(Task("quantize", "s", 2, lambda: None, 0, 1000), 0.002)
    assert copy.arithmetic_share(limits, "avx2") is None


def test_every_kernel_runs_on_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_COLD_BYTES", 2**20)
    monkeypatch.setattr(tasks_module, "_CONTEXTS", (48,))
    monkeypatch.setattr(tasks_module, "OUTPUT_MATRICES", ())
    seen = []
    for task in kernel_tasks(TABLE, KERNELS, (1, 5)):
        task.run()
        assert task.num_bytes > 0
        assert (task.macs > 0) == (task.kernel not in ("quantize", "dequantize"))
        seen.append((task.kernel, task.shape, task.tokens))
    assert len(set(seen)) == len(seen)
    assert {kernel for kernel, _, _ in seen} == set(KERNELS)
    for matrix in LAYER_MATRICES:
        shape = f"{matrix.name}: {matrix.dtype} {matrix.rows} × {matrix.cols}"
        assert ("int8_matmul", shape, 5) in seen


def test_work_is_what_the_result_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_CONTEXTS", (600,))
    by_shape = {t.shape: t for t in kernel_tasks(TABLE, ["attention"], (2,))}
    everything = by_shape["SmolLM2, float32, to 600"]
    assert everything.macs == 2 * 3 * 64 * (599 + 600)
    blocks, block_bytes = 38, 16 * 64 * 2 * 4
    assert everything.num_bytes == blocks * block_bytes + 2 * 2 * 3 * 64 * 4
    window = by_shape["Gemma, local, float32, to 600"]
    assert window.macs == 2 * 4 * 256 * 2 * 512
    first_block = (598 + 1 - 512) // 16
    assert window.num_bytes == (38 - first_block) * 16 * 256 * 2 * 4 + 2 * 2 * 4 * 256 * 4


def test_output_layers_meet_few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_COLD_BYTES", 0)
    monkeypatch.setattr(tasks_module, "LAYER_MATRICES", ())
    small = [matrix._replace(rows=64) for matrix in OUTPUT_MATRICES]
    monkeypatch.setattr(tasks_module, "OUTPUT_MATRICES", tuple(small))
    tasks = list(kernel_tasks(TABLE, ["int8_matmul"], (1, 4, 16)))
    assert [task.tokens for task in tasks] == [1, 4, 1, 4]


def test_decoding_finds_its_weights_in_memory_and_prompts_find_them_near() -> None:
    weights = np.arange(6)
    cold = tasks_module._turns(np.zeros(2**24, np.uint8), 1)
    assert len({next(cold).ctypes.data for _ in range(20)}) == 8
    near = tasks_module._turns(weights, 16)
    assert next(near) is next(near) is weights


def test_the_report_is_json_and_the_tables_fit_a_terminal() -> None:
    report = run_kernels(kernels=["quantize", "dequantize"], tokens=(1, 3), budget_s=1e-4)
    shape = "SmolLM2 gate, up: Q4_1 1536 × 576"
    wide = KernelTime("int8_matmul", shape, 512, 10**10, 10**9, "int8", 0.1234)
    report = replace(report, times=(*report.times, wide))
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["schema"] == "foreword.bench.kernels/1"
    assert data["isa"] == _core.available_isas()[0]
    assert all(time["seconds"] > 0 and time["read_share"] > 0 for time in data["times"])
    console = Console(width=80)
    with console.capture() as captured:
        console.print(*kernels_tables(report), sep="\n\n")
    assert "…" not in captured.get()
    assert "123,400.0" in captured.get()
    lines = captured.get().splitlines()
    assert len([line for line in lines if "activations" in line]) == len(
        [time for time in report.times if time.kernel == "quantize"]
    )


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="'softmax' is not one of matmul"):
        run_kernels(kernels=["softmax"])
    with pytest.raises(ConfigError, match="'sse2' is not one of auto"):
        run_kernels(isa="sse2")
