"""When a prompt would have its first token, if it came now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from foreword.kv import KVCache
from foreword.sched.batch import Batch
from foreword.sched.beginnings import Beginnings
from foreword.sched.cost import CostModel, StepLoad
from foreword.sched.fair import FairQueue
from foreword.sched.growth import Growth
from foreword.sched.packing import Packing
from foreword.sched.policy import Policy
from foreword.sched.queue import rank
from foreword.sched.running import RunningSet
from foreword.sched.sequence import Sequence

_PARTS = 8  # of a line whose prompts are taken to share steps alike


class Forecast(NamedTuple):
    """What is to be expected of a prompt.

    Attributes:
        ttft_s: seconds until its first token.
        work_s: what computing the prompt takes, in steps of its own.
        slot_s: how long those behind it wait for another slot; 0 where there are enough.
        token_s: what each token of its answer adds to a step.
        num_tokens: how many these will be, each in another step.
        step_s: what a step takes until then.
        behind: ids of the requests without a first token that it would pass; to be read before
            anything changes.
    """

    ttft_s: float
    work_s: float
    slot_s: float
    token_s: float
    num_tokens: int
    step_s: float
    behind: Iterable[str]

    def delay_s(self, within_s: float) -> float:
        """By how much it delays what else is to be done within some seconds."""
        stream_s = self.token_s * min(self.num_tokens, within_s / self.step_s)
        return self.work_s + self.slot_s + stream_s


@dataclass(slots=True)
class _Scene:
    """What a prompt finds once the running step has ended.

    Attributes:
        streams: get a token in each step.
        ahead: work of each prompt that goes first.
        behind: prompts that it would pass.
        shared: tokens of a prompt behind it that gets a share of each step all the same.
    """

    streams: list[Sequence]
    ahead: list[StepLoad]
    behind: list[Sequence]
    shared: int = 0


class Forecaster:
    """Predicts what `Packing` will make of the line, from sums over it.

    Prompts ahead count as equal ones. Nobody else is taken to come, and no blocks to run out. It
    reads what the scheduler keeps, and changes nothing.

    Args:
        max_running: completions that may run at once.
    """

    def __init__(
        self,
        policy: Policy,
        packing: Packing,
        cost: CostModel,
        cache: KVCache,
        running: RunningSet,
        waiting: FairQueue,
        beginnings: Beginnings,
        growth: Growth,
        max_running: int,
    ) -> None:
        self._growth = growth
        self._policy = policy
        self._packing = packing
        self._cost = cost
        self._cache = cache
        self._running = running
        self._waiting = waiting
        self._beginnings = beginnings
        self._max_running = max_running

    def forecast(
        self, seq: Sequence, now: float, step: Batch | None, step_left_s: float
    ) -> Forecast:
        """Predict for a sequence that is nowhere in line yet.

        Args:
            step: what has been planned and not been applied.
            step_left_s: how much longer that will take.
        """
        in_step = {each.seq_id: len(part.token_ids) for each, part in step.prompts} if step else {}
        scene = self._scene(seq, now, in_step)
        own, ahead = self._beginnings.work(seq, in_step), StepLoad.sum(scene.ahead)
        steps = _Steps(self._cost, scene.streams)
        num_in_line = len(scene.ahead) + 1 + len(scene.behind)
        self._serve(ahead, scene, steps, num_in_line)
        steps.reach(self._steps_until_room(seq, own, ahead, scene))
        size = self._num_ending(own, num_in_line - len(scene.ahead), steps)
        own_step_s = steps.each_s / size
        steps.add(1 / size)
        beside = min(len(scene.behind), int(size * (ceil(steps.count) - steps.count)))
        steps.reach(ceil(steps.count))
        shared = min(scene.shared, int(steps.count) * self._packing.most_shared)
        work_s = self._cost.work_s(own)
        prompts_s = (
            self._cost.work_s(ahead) + (1 + beside) * work_s + self._cost.prompt_s(shared, 0)
        )
        to_come_s = steps.seconds + prompts_s
        step_s = to_come_s / steps.count
        slots = self._running.num_slots + num_in_line - 1 + len(seq.draws)
        slot_s = step_s * self._growth.mean_length / self._max_running
        return Forecast(
            ttft_s=step_left_s + to_come_s,
            work_s=work_s + own_step_s,
            slot_s=slot_s if slots > self._max_running else 0.0,
            token_s=self._cost.stream_s(len(seq.token_ids)) * len(seq.draws),
            num_tokens=self._growth.left(seq.num_left),
            step_s=step_s,
            behind=(each.tracked.request.request_id for each in scene.behind),
        )

    def _scene(self, seq: Sequence, now: float, in_step: Mapping[int, int]) -> _Scene:
        ahead, behind = self._waiting.around(seq)
        scene = _Scene(list(self._running.streams), ahead, behind)
        own_rank = rank(self._policy, seq)
        for each in self._running.part_way:
            num_left = each.num_missing - in_step.get(each.seq_id, 0)
            if num_left == 0:
                scene.streams.append(each)
            elif rank(self._policy, each) < own_rank:
                scene.ahead.append(StepLoad.prompt(num_left, len(each.token_ids) - num_left))
            else:
                scene.behind.append(each)
        oldest = (*self._running.part_way[:1], self._waiting.longest_waiting)
        aged = self._packing.aged([each for each in oldest if each is not None], now)
        if aged is not None and aged in scene.behind:
            scene.shared = aged.num_uncached - in_step.get(aged.seq_id, 0)
        return scene

    def _serve(self, ahead: StepLoad, scene: _Scene, steps: _Steps, num_in_line: int) -> None:
        """Count the steps until the prompts ahead have ended; they become streams, slots allowing.

        The fewer are left in line, the fewer share a step: they are counted in parts.
        """
        num_ahead = len(scene.ahead)
        slots = max(0, self._max_running - self._running.num_slots)
        part = -(-num_ahead // _PARTS)
        for done in range(0, num_ahead, max(1, part)):
            count = min(part, num_ahead - done)
            steps.add(count / self._num_ending(ahead.over(num_ahead), num_in_line - done, steps))
            steps.streams.decodes += min(count, slots)
            slots -= min(count, slots)

    def _num_ending(self, each: StepLoad, num_in_line: int, steps: _Steps) -> float:
        return self._packing.num_ending(steps.each_s, each, num_in_line, steps.streams.decodes)

    def _steps_until_room(
        self, seq: Sequence, own: StepLoad, ahead: StepLoad, scene: _Scene
    ) -> float:
        """Steps until enough streams have ended for a sequence, and those ahead of it, to run."""
        num_new = len(scene.ahead) + 1
        slots = num_new - 1 + len(seq.draws) + self._running.num_slots - self._max_running
        blocks = self._cache.blocks_for(ahead.num_tokens + own.num_tokens) + num_new
        blocks += len(scene.streams) - self._cache.pool.num_available  # each keeps one to grow into
        if slots <= 0 and blocks <= 0:
            return 0.0
        left, held = 0, 1
        ends = (
            (self._growth.left(each.num_left), len(each.table.blocks)) for each in scene.streams
        )
        for left, num_blocks in sorted(ends):
            slots -= 1
            blocks -= num_blocks
            held += num_blocks
            if slots <= 0 and blocks <= 0:
                return left
        # the rest go when those have ended that come after these
        rounds = max(slots / self._max_running, blocks / (held + self._cache.pool.num_available))
        return left + rounds * self._growth.mean_length


class _Steps:
    """Steps to come, and what they cost beside prompts.

    Attributes:
        count: how many, parts of steps too.
        seconds: what they cost together.
        streams: those that are part of them.
    """

    def __init__(self, cost: CostModel, streams: list[Sequence]) -> None:
        self.count = 0.0
        self.seconds = 0.0
        context = sum([len(seq.token_ids) for seq in streams])
        self.streams = StepLoad(decodes=len(streams), decode_context=context)
        self._cost = cost

    @property
    def each_s(self) -> float:
        """What the next one costs."""
        return self._cost.base_s(self.streams)

    def add(self, count: float) -> None:
        """Count some more."""
        self.count += count
        self.seconds += count * self.each_s

    def reach(self, count: float) -> None:
        """Count until there are at least so many."""
        self.add(max(0.0, count - self.count))
