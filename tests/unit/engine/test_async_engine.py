"""`AsyncEngine`: many requests on one event loop, and what happens when readers leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from support.scripted import tiny_engine
from support.waiting import HANG_S

from foreword.backends.null import NullBackend
from foreword.config.admission import AdmissionConfig
from foreword.core.params import SamplingParams
from foreword.core.step import StepPlan, StepResult
from foreword.engine import async_engine
from foreword.engine.async_engine import AsyncEngine
from foreword.errors import BackendError, EngineStoppedError, InvalidRequestError, OverloadedError

Scenario = Callable[[AsyncEngine], Coroutine[Any, Any, None]]


def run(scenario: Scenario, limits: AdmissionConfig | None = None, **options: Any) -> None:
    """Run a scenario against a started engine, and stop it."""

    async def main() -> None:
        engine = AsyncEngine(tiny_engine(**options), limits or AdmissionConfig())
        await engine.start()
        try:
            await asyncio.wait_for(scenario(engine), HANG_S)
        finally:
            await engine.shutdown()

    asyncio.run(main())


async def text_of(engine: AsyncEngine, prompt: str, **options: Any) -> str:
    params = SamplingParams(max_tokens=options.pop("max_tokens", 50))
    deltas = engine.generate(list(prompt.encode()), params, **options)
    return "".join([d.completions[0].text async for d in deltas])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def idle(engine: AsyncEngine) -> bool:
    stats = engine.stats()
    return not (stats.num_running or stats.num_waiting or stats.blocks.referenced)


def test_many_requests_at_once_do_not_disturb_each_other() -> None:
    async def scenario(engine: AsyncEngine) -> None:
        words = [f"answer number {i}" for i in range(200)]
        texts = await asyncio.gather(*(text_of(engine, f"say:{word}") for word in words))
        assert texts == words
        await until(lambda: idle(engine))

    run(scenario, max_num_seqs=16)


def test_leaving_a_stream_frees_it_within_a_step() -> None:
    async def scenario(engine: AsyncEngine) -> None:
        async with aclosing(engine.generate([1], SamplingParams(max_tokens=3000))) as deltas:
            async for _ in deltas:
                break
        await until(lambda: idle(engine))

    run(scenario)


def test_cancelling_a_waiting_request_means_it_is_never_computed() -> None:
    gate = threading.Event()

    async def scenario(engine: AsyncEngine) -> None:
        first = asyncio.ensure_future(text_of(engine, "say:first"))
        await until(lambda: engine.steps.next_number > 0)  # it waits at the gate
        others = [asyncio.ensure_future(text_of(engine, "y" * 99)) for _ in range(5)]
        await until(lambda: engine.stats().num_waiting == 5)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        gate.set()
        assert await first == "first"
        await until(lambda: idle(engine))
        assert engine.stats().totals.prompt_tokens == len("say:first")

    run(scenario, on_step=lambda plan: gate.wait(HANG_S), max_num_seqs=1)


def test_a_first_token_leaves_before_the_next_step_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_engine, "_FIRST_WORDS_S", 10.0)
    events: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def on_step(plan: StepPlan) -> None:
        events.append("step")
        loops[0].call_soon_threadsafe(time.sleep, 0.02)  # the event loop is busy when it ends

    async def scenario(engine: AsyncEngine) -> None:
        loops.append(asyncio.get_running_loop())
        async for _ in engine.generate([1, 2], SamplingParams(max_tokens=3)):
            events.append("read")

    run(scenario, on_step=on_step)
    assert events[:3] == ["step", "read", "step"]


def test_a_template_that_is_slow_does_not_hold_up_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(async_engine, "time", SimpleNamespace(monotonic=lambda: now_s))

    async def scenario(engine: AsyncEngine) -> None:
        threads: list[str] = []
        render = engine.tokenizer.render_chat

        def slowly(messages: Any, **options: Any) -> str:
            nonlocal now_s
            threads.append(threading.current_thread().name)
            now_s += pauses_s.pop(0)
            return render(messages, **options)

        pauses_s = [0.1, 0.0, 0.1, 0.0, 0.0, 0.0]
        engine.tokenizer.render_chat = slowly  # type: ignore[method-assign]
        for text in ["x"] * 5 + ["long" * 5000]:
            ids = await engine.encode_chat([{"role": "user", "content": text}])
            assert ids == list(f"user: {text}\nassistant: ".encode())
        # Slow, quick; so here, but slow again; quick; so here; and a long one never.
        here = [name == threading.main_thread().name for name in threads]
        assert here == [False, False, True, False, True, False]

    run(scenario)


def test_shutdown_lets_running_requests_end() -> None:
    async def main() -> None:
        engine = AsyncEngine(tiny_engine(on_step=lambda plan: threading.Event().wait(0.002)))
        await engine.start()
        running = asyncio.ensure_future(text_of(engine, "say:to the end"))
        await until(lambda: engine.stats().num_running == 1)
        stopping = asyncio.ensure_future(engine.shutdown(drain_s=10))
        await asyncio.sleep(0)
        with pytest.raises(EngineStoppedError):
            await text_of(engine, "say:too late")
        assert await running == "to the end"
        await stopping
        assert not engine.accepting

    asyncio.run(main())


def test_shutdown_ends_what_does_not_end_by_itself() -> None:
    async def scenario(engine: AsyncEngine) -> None:
        running = asyncio.ensure_future(text_of(engine, "x", max_tokens=4000))
        await until(lambda: engine.stats().num_running == 1)
        await engine.shutdown(drain_s=0.02)
        with pytest.raises(EngineStoppedError, match="shutting down"):
            await running

    run(scenario, on_step=lambda plan: threading.Event().wait(0.002))


def test_a_failed_step_is_an_error_of_its_requests_only() -> None:
    def on_step(plan: StepPlan) -> None:
        if any(66 in sequence.token_ids for sequence in plan.sequences):
            raise BackendError("poison")

    async def scenario(engine: AsyncEngine) -> None:
        with pytest.raises(BackendError, match="poison"):
            await text_of(engine, "B")
        assert await text_of(engine, "say:fine") == "fine"
        assert engine.healthy

    run(scenario, on_step=on_step)


def test_a_result_for_another_plan_is_an_error_of_its_requests_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute = NullBackend.execute

    def lose_one(backend: NullBackend, plan: StepPlan) -> StepResult:
        result = execute(backend, plan)
        poisoned = any(66 in sequence.token_ids for sequence in plan.sequences)
        return StepResult(result.sequences[1:]) if poisoned else result

    monkeypatch.setattr(NullBackend, "execute", lose_one)

    async def scenario(engine: AsyncEngine) -> None:
        prompts = ("say:one", "B", "say:two")
        answers = await asyncio.gather(
            *(text_of(engine, prompt) for prompt in prompts), return_exceptions=True
        )
        assert (answers[0], answers[2]) == ("one", "two")
        assert isinstance(answers[1], BackendError)
        assert "does not answer its plan" in str(answers[1])
        assert engine.healthy
        assert await text_of(engine, "say:fine") == "fine"
        assert idle(engine)

    run(scenario)


def test_a_dead_step_loop_is_told_to_everyone() -> None:
    def on_step(plan: StepPlan) -> None:
        del plan
        raise ZeroDivisionError

    async def scenario(engine: AsyncEngine) -> None:
        with pytest.raises(BackendError, match="ZeroDivisionError"):
            await text_of(engine, "x")
        assert not engine.accepting
        with pytest.raises(EngineStoppedError):  # at once, even while the thread is ending
            await text_of(engine, "x")
        await until(lambda: not engine.healthy)

    run(scenario, on_step=on_step)


def test_mistakes_are_errors_before_any_delta() -> None:
    async def scenario(engine: AsyncEngine) -> None:
        with pytest.raises(InvalidRequestError, match="no tokens"):
            await text_of(engine, "")
        running = asyncio.ensure_future(text_of(engine, "say:abc", request_id="mine"))
        await asyncio.sleep(0)
        with pytest.raises(InvalidRequestError, match="in use"):
            await text_of(engine, "say:abc", request_id="mine")
        assert await running == "abc"
        assert await text_of(engine, "say:again", request_id="mine") == "again"

    run(scenario)


def test_who_leaves_before_its_work_between_steps_disturbs_nobody() -> None:
    gate = threading.Event()

    async def scenario(engine: AsyncEngine) -> None:
        running = asyncio.ensure_future(text_of(engine, "say:first"))
        await until(lambda: engine.steps.next_number > 0)  # it waits at the gate
        look = asyncio.ensure_future(engine.between_steps(lambda engine: engine.cache.state()))
        await asyncio.sleep(0)  # it is in line
        look.cancel()
        gate.set()
        assert await running == "first"
        assert (await engine.between_steps(lambda engine: engine.cache.clear())).blocks > 0

    run(scenario, on_step=lambda plan: bool(gate.wait(HANG_S)))


def test_work_between_steps_that_is_never_reached_is_told_so() -> None:
    holding = threading.Event()

    def die(record: object) -> None:
        holding.wait(HANG_S)
        raise RuntimeError("planted")

    async def scenario(engine: AsyncEngine) -> None:
        engine.on_step = die
        asking = asyncio.ensure_future(text_of(engine, "say:a"))
        await until(lambda: engine.steps.next_number > 0)
        look = asyncio.ensure_future(engine.between_steps(lambda engine: engine.cache.state()))
        await asyncio.sleep(0)  # it is in line
        holding.set()
        for waiting in (asking, look):
            with pytest.raises(BackendError, match="planted"):
                await waiting

    run(scenario)


def test_work_between_steps_that_comes_too_late_is_told_so() -> None:
    async def main() -> None:
        holding = threading.Event()
        engine = AsyncEngine(tiny_engine(on_step=lambda plan: bool(holding.wait(HANG_S))))
        await engine.start()
        asking = asyncio.ensure_future(text_of(engine, "say:a"))
        await until(lambda: engine.steps.next_number > 0)
        look = asyncio.ensure_future(engine.between_steps(lambda engine: engine.cache.state()))
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(engine.shutdown())
        await until(lambda: engine._stopping)
        holding.set()
        await ending
        for waiting in (asking, look):
            with pytest.raises(EngineStoppedError):
                await waiting

    asyncio.run(main())


def test_thousands_at_once_are_answered_or_refused() -> None:
    async def scenario(engine: AsyncEngine) -> None:
        asked = (text_of(engine, f"say:{number}") for number in range(4000))
        texts = await asyncio.gather(*asked, return_exceptions=True)
        refused = [text for text in texts if isinstance(text, OverloadedError)]
        served = {number: text for number, text in enumerate(texts) if isinstance(text, str)}
        assert len(refused) + len(served) == 4000
        assert len(served) >= 200
        assert all(text == str(number) for number, text in served.items())
        await until(lambda: idle(engine))
        assert engine.has_room

    run(scenario, AdmissionConfig(max_queue_requests=200))


def test_who_leaves_while_it_waits_makes_room() -> None:
    gate = threading.Event()

    async def scenario(engine: AsyncEngine) -> None:
        first = asyncio.ensure_future(text_of(engine, "say:first"))
        await until(lambda: engine.steps.next_number > 0)
        waiting = asyncio.ensure_future(text_of(engine, "say:second"))
        await asyncio.sleep(0)
        assert not engine.has_room
        with pytest.raises(OverloadedError):
            await text_of(engine, "say:third")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert engine.has_room  # while the step still runs
        third = asyncio.ensure_future(text_of(engine, "say:third"))
        await asyncio.sleep(0)
        gate.set()
        assert (await first, await third) == ("first", "third")

    run(
        scenario,
        AdmissionConfig(max_queue_requests=1),
        on_step=lambda plan: bool(gate.wait(HANG_S)),
    )
