"""How long a step will take, learnt from the steps that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from operator import attrgetter, mul
from sys import maxsize

from foreword.core.step import StepPlan

_FORGET = 0.97  # a step's weight falls to a third within 35 steps
_SWEEPS = 4  # of coordinate descent after each step: the fit moves little from one to the next
_OUTLIER = 0.3  # relative error from which a step counts less (Huber)
_PRIOR_WEIGHT = 0.01  # of the start values, in steps
_FORGOTTEN = 1e-9  # below this, nothing is known of a kind of work but its coefficient

# Of SmolLM2 135M on two cores.
_START_S = (1.6e-3, 4.6e-4, 1.4e-7, 8.6e-4, 1e-6)
# A step with much of everything: start values weigh as if each were measured on it alone.
_TYPICAL = (1.0, 256.0, 1e5, 8.0, 4e3)

LOAD_FEATURES = ("steps", "prompt_tokens", "prompt_pairs", "decodes", "decode_context")
"""Names of `StepLoad.features`."""


@dataclass(slots=True)
class StepLoad:
    """The work in a step, as far as its duration depends on it.

    Attributes:
        prompt_tokens: tokens of stretches longer than one.
        prompt_pairs: for each of those tokens, the positions that it attends to, summed.
        decodes: sequences that compute a single token.
        decode_context: positions that those attend to, summed.
    """

    prompt_tokens: int = 0
    prompt_pairs: float = 0.0
    decodes: int = 0
    decode_context: int = 0

    @classmethod
    def of(cls, plan: StepPlan) -> StepLoad:
        """The load of a whole step."""
        load = cls()
        for step in plan.sequences:
            load.add(len(step.token_ids), step.start)
        return load

    @classmethod
    def prompt(cls, count: int, start: int) -> StepLoad:
        """The load of ``count`` tokens that follow ``start`` computed ones."""
        load = cls()
        load.add(count, start)
        return load

    @classmethod
    def sum(cls, loads: Sequence[StepLoad]) -> StepLoad:
        """All of them together."""
        fields = ("prompt_tokens", "prompt_pairs", "decodes", "decode_context")
        return cls(*(sum(map(attrgetter(field), loads)) for field in fields))

    def over(self, count: int) -> StepLoad:
        """The mean of ``count`` prompts that are this load together."""
        load = StepLoad()
        load.prompt_tokens = -(-self.num_tokens // count)
        load.prompt_pairs = self.prompt_pairs / count
        return load

    @property
    def num_tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.decodes

    def add(self, count: int, start: int) -> None:
        """Add the next ``count`` tokens of a sequence that has ``start`` computed ones."""
        if count == 1:
            self.decodes += 1
            self.decode_context += start + 1
        else:
            self.prompt_tokens += count
            self.prompt_pairs += count * (start + (count + 1) / 2)

    @property
    def features(self) -> tuple[float, float, float, float, float]:
        """What the coefficients of the model belong to, in their order."""
        return (
            1.0,
            float(self.prompt_tokens),
            self.prompt_pairs,
            float(self.decodes),
            float(self.decode_context),
        )


class CostModel:
    """Predicts a step's duration as a sum with one coefficient for each kind of work.

    ``fixed + prompt·tokens + attend·pairs + decode·sequences + read·context``, none negative.
    The coefficients follow the measured steps by recursive least squares on *relative* errors with
    exponential forgetting (Ljung, System Identification, ch. 11): sums of the normal equations are
    kept, and a few sweeps of coordinate descent, clipped at zero, go on from the last solution. So
    what recent steps say nothing about stays as it was. A step that took far longer than predicted
    (the machine was busy elsewhere) counts less.

    Args:
        coefficients_s: seconds for each of `StepLoad.features`, to start from; not all 0.
        forget: what a step still weighs after the next one; 1: all steps weigh the same.
    """

    def __init__(
        self,
        coefficients_s: tuple[float, float, float, float, float] = _START_S,
        *,
        forget: float = _FORGET,
    ) -> None:
        self._forget = forget
        self._coefficients = list(coefficients_s)
        size = len(self._coefficients)
        self._gram = [[0.0] * size for _ in range(size)]
        self._target = [0.0] * size
        expected = sum(c * t for c, t in zip(coefficients_s, _TYPICAL, strict=True))
        for i, (coefficient, typical) in enumerate(zip(coefficients_s, _TYPICAL, strict=True)):
            weight = _PRIOR_WEIGHT * (typical / expected) ** 2
            self._gram[i][i] = weight
            self._target[i] = weight * coefficient

    @property
    def coefficients_s(self) -> tuple[float, ...]:
        """Seconds for each of `StepLoad.features`."""
        return tuple(self._coefficients)

    def predict(self, load: StepLoad) -> float:
        """Seconds that a step with this load will take."""
        _, prompt, attend, _, _ = self._coefficients
        return self.base_s(load) + prompt * load.prompt_tokens + attend * load.prompt_pairs

    def base_s(self, load: StepLoad) -> float:
        """Seconds of it that are not for prompts: what each further step would cost again."""
        fixed, _, _, decode, read = self._coefficients
        return fixed + decode * load.decodes + read * load.decode_context

    def work_s(self, load: StepLoad) -> float:
        """Seconds of it that are for the load itself, in however many steps."""
        return self.predict(load) - self._coefficients[0]

    def stream_s(self, context: int) -> float:
        """Seconds that a stream with so many tokens adds to a step."""
        return self.work_s(StepLoad(decodes=1, decode_context=context))

    def prompt_s(self, count: int, start: int) -> float:
        """Seconds that ``count`` tokens after ``start`` computed ones add to a step."""
        return self.work_s(StepLoad.prompt(count, start))

    def tokens_within(self, seconds: float, start: int) -> int:
        """The most tokens after ``start`` computed ones that add no more than ``seconds``."""
        _, prompt, attend, _, _ = self._coefficients
        linear, square = prompt + attend * (start + 0.5), attend / 2
        if seconds <= 0:
            return 0
        if linear == 0:
            return maxsize
        # the positive root of square·n² + linear·n = seconds, in the form that takes square = 0
        return int(2 * seconds / (linear + sqrt(linear**2 + 4 * square * seconds)))

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step that took ``seconds``."""
        if seconds <= 0:
            return
        predicted = self.predict(load)
        error = abs(seconds - predicted) / predicted if predicted > 0 else 0.0
        weight = min(1.0, _OUTLIER / error) if error else 1.0
        row = [feature / seconds for feature in load.features]
        for i in range(len(row)):
            now = weight * row[i]
            self._gram[i] = [
                self._forget * g + now * r for g, r in zip(self._gram[i], row, strict=True)
            ]
            self._target[i] = self._forget * self._target[i] + now
        self._descend()

    def _descend(self) -> None:
        solution = self._coefficients
        for _ in range(_SWEEPS):
            for i, gram in enumerate(self._gram):
                if gram[i] < _FORGOTTEN:
                    continue
                slope = sum(map(mul, gram, solution)) - self._target[i]
                solution[i] = max(0.0, solution[i] - slope / gram[i])
