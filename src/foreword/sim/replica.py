"""One simulated server: a real engine on a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from foreword.backends.null import NullBackend
from foreword.config.engine import EngineConfig
from foreword.core.params import SamplingParams
from foreword.core.request import Urgency
from foreword.core.step import SequenceStep, StepPlan
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
        seed: of the noise of its steps.

    Attributes:
        busy_s: how long it has computed.
        between_steps_s: see `CostProfile`.
    """

    def __init__(self, number: int, config: EngineConfig, profile: CostProfile, seed: int) -> None:
        self.number = number
        self.between_steps_s = profile.between_steps_s
        self._profile = profile
        self._steps = StepClock(profile, f"{seed}/{number}")
        self._clock = Clock()
        backend = NullBackend(
            vocab_size=VOCAB_SIZE,
            block_size=config.cache.block_size,
            next_token=_answer,
            on_step=self._compute,
            clock=self._clock,
            keeps_contents=False,
        )
        tokenizer = cast(Tokenizer, _OneWord())  # an engine asks no more of it
        self.engine = Engine(backend, tokenizer, config, model_name="simulated", clock=self._clock)
        self.busy_s = 0.0
        self.engine.warm_up()
        self.busy_s = 0.0
        self._front_free_s = 0.0
        self._num_tokens_coming = 0
        self._step: Step | None = None

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
        ttft_slo_ms: float | None,
    ) -> None:
        """Queue a request that was received.

        Raises:
            InvalidRequestError: the engine refuses it.
        """
        self._clock.now_s = now_s
        self._num_tokens_coming -= len(token_ids)
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        request = self.engine.make_request(
            token_ids, params, request_id=request_id, urgency=Urgency(ttft_slo_ms=ttft_slo_ms)
        )
        self.engine.add(request)

    def begin(self, now_s: float) -> float | None:
        """Plan a step; return when it will end, None where there is nothing to compute."""
        self._clock.now_s = now_s
        self._step = self.engine.plan()
        if self._step is None:
            return None
        self.engine.execute(self._step)  # which sets the clock on to the step's end
        return self._clock.now_s

    def end(self, now_s: float) -> list[RequestDelta]:
        """Apply the step that was begun, at its end."""
        assert self._step is not None
        self._clock.now_s = now_s
        return self.engine.apply(self._step)

    def _compute(self, plan: StepPlan) -> None:
        seconds = self._steps.seconds(StepLoad.of(plan))
        self.busy_s += seconds
        self._clock.now_s += seconds


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
