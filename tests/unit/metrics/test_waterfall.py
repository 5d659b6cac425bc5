"""A request's time is cut without gap or overlap, and every wait is charged to what caused it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import tiny_engine

from foreword.core.params import SamplingParams
from foreword.core.step import StepPlan
from foreword.core.trace import Chunk, PlanNotes, RequestTrace, StepLog
from foreword.errors import BackendError
from foreword.metrics.lifetime import Lifetime
from foreword.metrics.partition import PARTS, Part, partition, seconds_by_part
from foreword.metrics.waterfall import Stretch, waterfall

STEP_S = 1.0
READ_S = 2**-16  # each look at the clock takes this long; exact in binary


@dataclass
class Served:
    """A request as the server sees it."""

    life: Lifetime
    trace: RequestTrace = field(default_factory=RequestTrace)
    stream: bool = True
    text: str = ""


class World:
    """An engine on a virtual clock, where a step takes a second, and a server around it."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.during_step: list[str] = []  # prompts that come while the next step runs
        self.fail_next = False
        self.requests: dict[str, Served] = {}
        self.engine = tiny_engine(on_step=self._on_step, clock=self.clock, **options)

    def clock(self) -> float:
        self.now += READ_S
        return self.now

    def add(self, prompt: str, *, stream: bool = True, **params: Any) -> str:
        """What the event loop does with a request."""
        options = {"temperature": 0.0, "max_tokens": 8, **params}
        request = self.engine.make_request(list(prompt.encode()), SamplingParams(**options))
        served = Served(Lifetime(self.clock()), stream=stream)
        served.life.read_s = self.clock()
        served.life.parsed_s = self.clock()
        served.life.tokenised_s = self.clock()
        self.requests[request.request_id] = served
        self.engine.add(self.engine.prepare(request), served.trace)
        return request.request_id

    def step(self) -> None:
        for delta in self.engine.step():
            self._deliver(delta)

    def run(self) -> None:
        while self.engine.has_work:
            self.step()

    def abort(self, name: str) -> None:
        self.engine.abort(name)
        self.requests[name].life.ended_s = self.clock()

    def parts(self, name: str) -> list[Part]:
        served = self.requests[name]
        end_s = served.life.first_written_s or served.life.ended_s or self.now
        parts = partition(served.life, served.trace, end_s, whole=not served.stream)
        check_contiguous(parts, served.life.received_s, end_s)
        return parts

    def waterfall(self, name: str) -> list[Stretch]:
        parts = self.parts(name)
        stretches = waterfall(parts, name, self.engine.steps)
        check_contiguous(stretches, parts[0].began_s, parts[-1].ended_s)
        return stretches

    def _on_step(self, plan: StepPlan) -> None:
        self.now += STEP_S / 2
        for prompt in self.during_step:
            self.add(prompt)
        self.during_step = []
        self.now += STEP_S / 2
        if self.fail_next:
            self.fail_next = False
            raise BackendError("injected")

    def _deliver(self, delta: Any) -> None:
        served = self.requests[delta.request_id]
        text = "".join(part.text for part in delta.completions)
        served.text += text
        if (served.stream and text and not served.life.delivered_s) or (
            not served.stream and delta.finished
        ):
            served.life.delivered_s = self.clock()
        if text if served.stream else delta.finished:
            served.life.last_written_s = self.clock()
            served.life.first_written_s = served.life.first_written_s or self.now
        if delta.finished:
            served.life.ended_s = self.clock()


def check_contiguous(parts: list[Any], began_s: float, ended_s: float) -> None:
    """Each part begins exactly where the one before it ended."""
    assert parts[0].began_s == began_s
    assert parts[-1].ended_s == ended_s
    assert all(part.began_s < part.ended_s for part in parts)
    assert all(before.ended_s == after.began_s for before, after in pairwise(parts))
    assert {part.name for part in parts} <= set(PARTS)


def named(stretches: list[Stretch], name: str) -> list[Stretch]:
    return [stretch for stretch in stretches if stretch.name == name]


def lasted(stretch: Stretch | Part) -> int:
    """Whole steps."""
    return round((stretch.ended_s - stretch.began_s) / STEP_S)


# --- the partition


requests = st.fixed_dictionaries(
    {
        "length": st.integers(1, 90),
        "first": st.sampled_from("abc"),
        "n": st.integers(1, 3),
        "max_tokens": st.integers(0, 20),
        "stop": st.sampled_from([(), ("defg",), ("a",)]),
        "stream": st.booleans(),
        "at": st.integers(0, 30),
        "leaves_at": st.none() | st.integers(0, 40),
    }
)


@settings(max_examples=60)
@given(
    loads=st.lists(requests, min_size=1, max_size=8),
    budget=st.sampled_from([4, 16, 64]),
    num_blocks=st.sampled_from([12, 20, 64]),
    fails_at=st.none() | st.integers(0, 20),
)
def test_parts_add_up_whatever_happens(loads, budget, num_blocks, fails_at) -> None:
    world = World(max_num_batched_tokens=budget, num_blocks=num_blocks, max_num_seqs=4)
    names: dict[int, str] = {}
    for number in range(60):
        for index, load in enumerate(loads):
            if load["at"] == number:
                options = {key: load[key] for key in ("n", "max_tokens", "stop", "stream")}
                names[index] = world.add(load["first"] * load["length"], **options)
            name = names.get(index)
            if load["leaves_at"] == number and name and not world.requests[name].life.ended_s:
                world.abort(name)
        world.fail_next = number == fails_at
        world.step()
        for name in names.values():
            world.waterfall(name)
    world.run()
    for name, served in world.requests.items():
        parts = world.parts(name)
        if served.life.ttft_s is not None:
            sums = seconds_by_part(parts)
            assert math.fsum(sums.values()) == pytest.approx(served.life.ttft_s, abs=1e-12)
            assert sum(map(lasted, parts)) <= served.life.ttft_s / STEP_S
            assert parts[-1].name == "write"


def test_a_prompt_in_chunks() -> None:
    world = World(max_num_batched_tokens=16)
    name = world.add("x" * 40)
    world.run()
    stretches = world.waterfall(name)
    assert [stretch.name for stretch in stretches] == [
        *("read", "parse", "tokenise", "handover"),
        *("schedule", "prefill") * 3,
        *("sample", "detokenise", "deliver", "write"),
    ]
    chunks = [(s.chunk, s.start_token, s.tokens) for s in named(stretches, "prefill")]
    assert chunks == [(0, 0, 16), (1, 16, 16), (2, 32, 8)]
    assert all(lasted(stretch) == (stretch.name == "prefill") for stretch in stretches)


def test_a_prefix_that_was_cached_is_no_chunk() -> None:
    world = World()
    world.add("x" * 40)
    world.run()
    name = world.add("x" * 40)
    world.run()
    [chunk] = named(world.waterfall(name), "prefill")
    assert (chunk.start_token, chunk.tokens) == (39, 1)
    assert world.requests[name].trace.num_cached_tokens == 39


def test_text_that_had_to_wait_is_decoding() -> None:
    world = World()
    name = world.add("say:abcx", stop=["abcd"])
    world.run()
    [decode] = named(world.waterfall(name), "decode")
    assert lasted(decode) == 3  # b, c, and the x that settles it
    assert world.requests[name].text == "abcx"


def test_a_whole_answer_waits_for_its_last_token() -> None:
    world = World()
    name = world.add("say:abcd", stream=False)
    world.run()
    assert lasted(*named(world.waterfall(name), "decode")) == 4  # b, c, d and the end


def test_a_request_that_still_runs_is_told_as_far_as_it_is() -> None:
    world = World(max_num_batched_tokens=16, max_num_seqs=1)
    first, second = world.add("x" * 40, max_tokens=5), world.add("y" * 8)
    world.step()
    assert [part.name for part in world.parts(first)][-2:] == ["prefill", "gap"]
    assert lasted(world.parts(second)[-1]) == 1
    assert world.parts(second)[-1].name == "queue"
    for _ in range(3):
        world.step()
    assert world.parts(first)[-1].name == "write"


def test_parts_end_with_the_request() -> None:
    world = World(max_num_batched_tokens=16)
    first, second = world.add("x" * 100), world.add("y" * 100)
    world.step()
    world.abort(second)
    [queue] = named(world.waterfall(second), "queue")
    before = (queue.ended_s, queue.num_steps, dict(queue.tokens_of))
    world.fail_next = True
    world.step()
    world.add("z" * 50)
    world.run()
    [queue] = named(world.waterfall(second), "queue")
    assert (
        (queue.ended_s, queue.num_steps, queue.tokens_of)
        == before
        == (
            world.requests[second].life.ended_s,
            1,
            {first: 16},
        )
    )
    assert [part.name for part in world.parts(first)][-3:] == ["prefill", "detokenise", "deliver"]


# --- causes


def test_a_request_behind_a_long_prompt_names_it_and_its_tokens() -> None:
    world = World(max_num_batched_tokens=16)
    long = world.add("x" * 80)
    short = world.add("y" * 4)
    world.run()
    [queue] = named(world.waterfall(short), "queue")
    assert (queue.cause, queue.tokens_of, queue.num_steps) == ("budget", {long: 80}, 5)
    assert lasted(queue) == 5


def test_a_request_that_comes_during_a_step_waits_for_its_end() -> None:
    world = World(max_num_batched_tokens=64)
    first = world.add("x" * 50)
    world.during_step = ["y" * 4]
    world.run()
    second = max(world.requests)
    [queue] = named(world.waterfall(second), "queue")
    assert (queue.cause, queue.tokens_of, queue.num_steps) == ("step", {first: 50}, 1)
    assert queue.ended_s - queue.began_s == pytest.approx(STEP_S / 2, abs=0.01)


def test_a_request_that_too_few_blocks_keep_waiting() -> None:
    world = World(num_blocks=6)
    first = world.add("x" * 60, max_tokens=4, ignore_eos=True)
    second = world.add("y" * 60, max_tokens=4, ignore_eos=True)
    world.run()
    [queue] = named(world.waterfall(second), "queue")
    assert (queue.cause, queue.tokens_of, queue.decodes) == ("blocks", {first: 60}, 1)
    assert lasted(queue) == queue.num_steps == 4


def test_a_request_that_waits_for_a_slot() -> None:
    world = World(max_num_seqs=2)
    for letter in "xy":
        world.add(letter, max_tokens=4, ignore_eos=True)
    third = world.add("z")
    world.run()
    [queue] = named(world.waterfall(third), "queue")
    assert (queue.cause, queue.decodes, queue.num_steps) == ("sequences", 2, 4)


def test_a_request_that_waits_for_its_prefix() -> None:
    world = World(max_num_batched_tokens=64)
    first, second = world.add("x" * 40), world.add("x" * 40 + "y")
    world.run()
    [queue] = named(world.waterfall(second), "queue")
    assert (queue.cause, queue.tokens_of, queue.num_steps) == ("prefix", {first: 40}, 1)
    assert world.requests[second].trace.num_cached_tokens == 32


def test_a_cause_that_changes_cuts_the_wait() -> None:
    world = World(max_num_batched_tokens=16, max_num_seqs=1)
    first = world.add("x" * 40, max_tokens=5, ignore_eos=True)
    second = world.add("y")
    world.run()
    queue = named(world.waterfall(second), "queue")
    assert [(stretch.cause, lasted(stretch)) for stretch in queue] == [
        ("budget", 2),
        ("sequences", 5),
    ]
    assert [stretch.tokens_of for stretch in queue] == [{first: 32}, {first: 8}]


def test_a_prompt_that_had_to_give_its_blocks_up() -> None:
    world = World(max_num_batched_tokens=3, num_blocks=12)
    world.engine.scheduler._growth.observe(0, 10**9, 0)  # it expects every stream to end at once
    for letter in "ab":
        world.add(letter, max_tokens=64, ignore_eos=True)
    world.step()
    victim = world.add("v" * 100)
    world.run()
    assert world.requests[victim].trace.preemptions == 1
    [gap] = named(world.waterfall(victim), "gap")
    assert gap.cause == "preempted"
    assert gap.decodes >= 1
    assert lasted(gap) == gap.num_steps > 10


def test_who_was_beside_a_chunk_is_told() -> None:
    world = World(max_num_batched_tokens=64)
    first, second = world.add("x" * 40), world.add("y" * 10)
    world.run()
    [chunk] = named(world.waterfall(second), "prefill")
    assert chunk.tokens_of == {first: 40}


def test_steps_without_the_request_between_two_chunks_are_a_gap() -> None:
    log = StepLog()
    mine, other = Chunk("me", 0, 8), Chunk("other", 0, 16)
    life, trace = Lifetime(0.0, 0.0, 0.0, None, 0.0), RequestTrace(queued_s=0.0)
    for number, notes in enumerate(
        [PlanNotes((mine,)), PlanNotes((other,), 3, "budget"), PlanNotes((mine,))]
    ):
        step = log.begin(number + 0.1, number + 0.2, notes)
        step.ended_s, step.applied_s = number + 0.8, number + 0.9
        if mine in notes.chunks:
            trace.chunks.append((step, mine))
    parts = partition(life, trace, 2.5, whole=False)
    check_contiguous(parts, 0.0, 2.5)
    [gap] = named(waterfall(parts, "me", log), "gap")
    assert (gap.began_s, gap.ended_s) == (0.8, 2.1)
    assert (gap.cause, gap.tokens_of, gap.decodes) == ("budget", {"other": 16}, 3)


def test_blocks_from_other_tiers_are_waited_for() -> None:
    log = StepLog()
    life = Lifetime(0.0, 0.0, 0.0, None, 0.0)
    trace = RequestTrace(queued_s=1.0, loads=True)
    parts = partition(life, trace, 5.0, whole=False)
    assert [(part.name, part.ended_s) for part in parts] == [("handover", 1.0), ("kv_load", 5.0)]

    other = log.begin(2.0, 2.0, PlanNotes((Chunk("other", 0, 16),)))
    other.ended_s = other.applied_s = 3.0
    trace.loaded = 4.0, other
    mine = Chunk("me", 0, 16)
    trace.chunks.append((log.begin(5.0, 6.0, PlanNotes((mine,))), mine))
    parts = partition(life, trace, 7.0, whole=False)
    check_contiguous(parts, 0.0, 7.0)
    assert [(part.name, part.ended_s) for part in parts] == [
        *(("handover", 1.0), ("kv_load", 4.0), ("handover", 5.0)),
        *(("schedule", 6.0), ("prefill", 7.0)),
    ]


def test_what_is_forgotten_is_told_as_forgotten() -> None:
    world = World(max_num_batched_tokens=16)
    world.engine.steps = StepLog(4)
    long = world.add("x" * 160)
    short = world.add("y")
    world.run()
    queue = named(world.waterfall(short), "queue")
    assert [stretch.forgotten for stretch in queue] == [True]
    world.add("z" * 160)
    world.run()
    [queue] = named(world.waterfall(short), "queue")
    assert (queue.cause, queue.tokens_of, queue.forgotten) == (None, {}, True)
    assert lasted(queue) == 10
    assert world.requests[long].life.ttft_s


def test_what_it_costs() -> None:
    """docs/evidence has the figure of a quiet machine, under 20 µs; this bound is generous."""
    best_s = math.inf
    for _ in range(20):
        log = StepLog(64)
        began_s = time.thread_time()
        for _ in range(100):
            life = Lifetime(0.0, 0.1, 0.2, None, 0.3)
            trace = RequestTrace(step_before=log.latest)
            step = log.begin(0.4, 0.5, PlanNotes((Chunk("me", 0, 16),)))
            trace.chunks.append((step, step.notes.chunks[0]))
            step.ended_s, step.applied_s = 0.6, 0.7
            trace.queued_s = 0.35
            trace.first_sampled = trace.first_text = trace.last = step
            life.delivered_s, life.first_written_s = 0.8, 0.9
            seconds_by_part(partition(life, trace, 0.9, whole=False))
        best_s = min(best_s, (time.thread_time() - began_s) / 100)
    assert best_s < 100e-6
