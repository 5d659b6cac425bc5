"""One simulated server: a real engine on a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from foreword.backends.null import NullBackend
from foreword.config.admission import AdmissionConfig
from foreword.config.engine import EngineConfig
from foreword.core.params import SamplingParams
from foreword.core.request import Urgency
from foreword.core.step import SequenceStep, StepPlan
from foreword.engine.admission import Admission
from foreword.engine.engine import Engine, Step
from foreword.engine.outputs import RequestDelta
from foreword.sched import StepLoad
from foreword.sim.cost import CostProfile, StepClock
from foreword.text.tokenizer import Tokenizer

ANSWER_TOKEN = 0
"""All that the simulated model says; no prompt has it, so answers share nothing with prompts."""

VOCAB_SIZE = 2**18 + 1


class Clock:
    """Seconds on a clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now_s


class Replica:
    """An engine whose steps take what a profile says, and the way into it.

    Steps begin and end when the caller says; requests may be added at any time between.

    Args:
        number: tells replicas apart.
        admission: what may queue.
        seed: of the noise of its steps.

    Attributes:
        busy_s: how long it has computed.
        between_steps_s: see `CostProfile`.
    """

    def __init__(
        self,
        number: int,
        config: EngineConfig,
        admission: AdmissionConfig,
        profile: CostProfile,
        seed: int,
    ) -> None:
        self.number = number
        self.between_steps_s = profile.between_steps_s
        self._profile = profile
        self._steps = StepClock(profile, f"{seed}/{number}")
        self._clock = Clock()
        backend = NullBackend(
            vocab_size=VOCAB_SIZE,
            block_size=config.cache.block_size,
            next_token=_answer,
            on_step=self._pass_time,
            clock=self._clock,
            keeps_contents=False,
        )
        tokenizer = cast(Tokenizer, _OneWord())  # an engine asks no more of it
        self.engine = Engine(backend, tokenizer, config, model_name="simulated", clock=self._clock)
        self._admission = Admission(self.engine, admission)
        self._front_free_s = 0.0
        self._num_tokens_coming = 0
        self._step: Step | None = None
        self._began_s = 0.0
        self._timed: tuple[StepPlan | None, float] = (None, 0.0)
        self.engine.warm_up()
        self.busy_s = 0.0

    @property
    def num_uncached_tokens(self) -> int:
        """Prompt tokens that it has still to compute, as far as can be told."""
        return self._num_tokens_coming + self.engine.scheduler.num_uncached_tokens

    def receive(self, now_s: float, num_tokens: int) -> float:
        """Take a request in; return when it is ready to be added. One is dealt with at a time."""
        begun_s = max(now_s, self._front_free_s)
        took_s = self._profile.request_s + num_tokens * self._profile.request_token_s
        self._front_free_s = begun_s + took_s
        self._num_tokens_coming += num_tokens
        return self._front_free_s

    def add(
        self,
        now_s: float,
        request_id: str,
        token_ids: Sequence[int],
        max_tokens: int,
        arrival_s: float,
        urgency: Urgency,
    ) -> None:
        """Queue a request that was received.

        Raises:
            InvalidRequestError: the engine refuses it.
            OverloadedError: admission does.
        """
        self._clock.now_s = now_s
        self._num_tokens_coming -= len(token_ids)
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        request = self.engine.make_request(
            token_ids, params, request_id=request_id, arrival_s=arrival_s, urgency=urgency
        )
        prompt = self.engine.prepare(request)
        self._admission.admit(prompt)
        self.engine.add(prompt)

    def begin(self, now_s: float) -> float | None:
        """Plan a step; return when it will end, None where there is nothing to compute."""
        self._clock.now_s = self._began_s = now_s
        self._step = self.engine.plan()
        if self._step is None:
            return None
        took_s = self._time(self._step.plan)
        self.busy_s += took_s
        return now_s + took_s

    def end(self) -> list[RequestDelta]:
        """Give what the step brought that was begun; it is the time when it ends."""
        assert self._step is not None
        self._clock.now_s = self._began_s
        self.engine.execute(self._step)  # which lets its time pass
        deltas = self.engine.apply(self._step)
        for delta in deltas:
            if delta.finished:
                self._admission.forget(delta.request_id)
        return deltas

    def _pass_time(self, plan: StepPlan) -> None:
        self._clock.now_s += self._time(plan)

    def _time(self, plan: StepPlan) -> float:
        """How long a step takes: asked for when it begins, and again when it is executed."""
        if plan is not self._timed[0]:
            self._timed = plan, self._steps.seconds(StepLoad.of(plan))
        return self._timed[1]


def _answer(history: Sequence[int], step: SequenceStep, draw: int) -> int:
    del history, step, draw
    return ANSWER_TOKEN


class _OneWord:
    """A tokenizer and detokenizer for which every token is the same text."""

    eos_token_ids: frozenset[int] = frozenset()

    def detokenizer(self, *, continues_text: bool = False) -> _OneWord:
        del continues_text
        return self

    def push(self, token_id: int) -> str:
        del token_id
        return "."

    def flush(self) -> str:
        return ""
