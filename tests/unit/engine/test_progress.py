from __future__ import annotations

import threading

import pytest

from foreword.engine import progress
from foreword.engine.progress import Progress, thread_stacks


def test_only_work_that_does_not_get_on_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    loop = Progress(10.0)
    now_s += 1000
    assert not loop.stuck  # nothing to do
    loop.work_came()
    now_s += 9
    loop.work_came()  # more of it does not mean that the loop gets on
    now_s += 2
    assert loop.stuck
    loop.made()
    assert not loop.stuck
    now_s += 11
    assert loop.stuck
    loop.nothing_to_do()
    assert not loop.stuck


def test_stacks_of_all_threads() -> None:
    gate = threading.Event()

    def wait_for_the_gate() -> None:
        gate.wait(10)

    waiting = threading.Thread(target=wait_for_the_gate, name="the waiting one")
    waiting.start()
    stacks = thread_stacks()
    gate.set()
    waiting.join()
    assert "thread the waiting one:" in stacks
    assert "in wait_for_the_gate" in stacks
    assert "test_stacks_of_all_threads" in stacks  # this thread's own
