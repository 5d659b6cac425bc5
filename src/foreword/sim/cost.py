"""What the simulated hardware is: how long steps and everything around them take."""

from __future__ import annotations

import json
import random
from dataclasses import MISSING, asdict, dataclass, fields
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from foreword.errors import ConfigError
from foreword.sched import CostModel, StepLoad

DEFAULT_PROFILE = "smollm2-135m-2-cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostProfile:
    """A model on some hardware, as far as time goes. Seconds, unless a name says otherwise.

    Attributes:
        name: for the reader of results.
        about: where the numbers are from.
        context_tokens: the most that the model takes, prompt and answer together.
        kv_tokens: how many tokens the KV pool holds, where ``num_blocks`` does not say.
        step_s: for each step, whatever is in it (on a GPU: reading the weights).
        prompt_token_s: for each prompt token that is computed.
        attention_pair_s: for each pair of such a token and a position that it attends to.
        decode_s: for each stream that gets its next token.
        context_token_s: for each position that such a stream attends to (reading its KV).
        between_steps_s: from the end of a step to the beginning of the next, while there is work.
        request_s: for each request before it is queued (HTTP, JSON, template); one at a time.
        request_token_s: the same for each token of its prompt (tokenising).
        reply_s: from the end of a step to when the client has its tokens.
        noise: spread of steps' durations: the standard deviation of their logarithm.

    Raises:
        ConfigError: a number that cannot be, or steps that take no time.
    """

    name: str
    about: str = ""
    context_tokens: int
    kv_tokens: int
    step_s: float
    prompt_token_s: float
    attention_pair_s: float
    decode_s: float
    context_token_s: float
    between_steps_s: float = 0.0
    request_s: float = 0.0
    request_token_s: float = 0.0
    reply_s: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str":
                good, wanted = isinstance(value, str), "a text"
            elif field.type == "int":
                good, wanted = _is_number(value, int) and value >= 1, "a whole number above 0"
            else:
                good = _is_number(value, int | float) and isfinite(value) and value >= 0
                wanted = "a number, finite and not below 0"
            if not good:
                raise ConfigError(f"cost.{field.name}", f"must be {wanted}, not {value!r}")
        if self.prompt_token_s == 0 or not (self.step_s or self.decode_s):
            raise ConfigError("cost", "a step must take time, with a prompt token and without one")

    @property
    def coefficients_s(self) -> tuple[float, float, float, float, float]:
        """What the cost model of the scheduler calls so: seconds for each of a load's features."""
        return (
            self.step_s,
            self.prompt_token_s,
            self.attention_pair_s,
            self.decode_s,
            self.context_token_s,
        )

    def to_json(self) -> dict[str, Any]:
        """Give it as plain data, as `read_profile` takes it."""
        return asdict(self)


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


class StepClock:
    """How long steps take: what the profile says, each with noise of its own.

    Args:
        seed: the same seed gives the same noise.
    """

    def __init__(self, profile: CostProfile, seed: str) -> None:
        self._model = CostModel(profile.coefficients_s)  # predicts; is never told anything
        self._noise = profile.noise
        self._draw = random.Random(seed)

    def seconds(self, load: StepLoad) -> float:
        """Give the duration of the next step; of many alike, the mean is the profile's."""
        exact_s = self._model.predict(load)
        if not self._noise:
            return exact_s
        return exact_s * self._draw.lognormvariate(-(self._noise**2) / 2, self._noise)


def known_profiles() -> list[str]:
    """Names of the profiles that come with foreword."""
    folder = files("foreword.sim") / "profiles"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir())


def read_profile(source: str) -> CostProfile:
    """Read a profile: one that comes with foreword, by name, or a JSON file.

    Raises:
        ConfigError: there is no such file, or it is no profile; says what is wrong with it.
    """
    if source in known_profiles():
        text = (files("foreword.sim") / "profiles" / f"{source}.json").read_text("utf-8")
    else:
        text = _read(source)
    try:
        members = json.loads(text)
    except ValueError as error:
        raise ConfigError("cost", f"{source} is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise ConfigError("cost", f"{source} is no JSON object")
    known = {field.name for field in fields(CostProfile)}
    for name in members.keys() - known:
        raise ConfigError("cost", f"{source}: {name!r} is none of {', '.join(sorted(known))}")
    needed = {f.name for f in fields(CostProfile) if f.default is MISSING}
    if missing := needed - members.keys():
        raise ConfigError("cost", f"{source} lacks {', '.join(sorted(missing))}")
    return CostProfile(**members)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(known_profiles())
        raise ConfigError(
            "cost", f"{path!r} is none of {known}, and no file that can be read: {error}"
        ) from None
