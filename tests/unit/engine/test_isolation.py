"""What a tenant can learn of another's prompts by asking for the same: nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.scripted import tiny_engine

from foreword.core.params import SamplingParams
from foreword.core.step import StepPlan
from foreword.core.trace import RequestTrace
from foreword.kv.identity import BlockName
from foreword.tiers.memory import MemoryTier

SECRET, OTHER = [7] * 300, [8] * 300


@dataclass
class Seen:
    """All that a request has to do with what was computed before it."""

    forecast_s: float = 0.0
    ttft_s: float = 0.0
    steps: list[tuple[int, int]] = field(default_factory=list)  # prompt tokens, blocks copied
    asked_tiers: list[tuple[str, bytes]] = field(default_factory=list)
    num_cached_tokens: int = 0


class Watched(MemoryTier):
    """Memory that says what it is asked."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.asked: list[tuple[str, bytes]] = []

    def has(self, name: BlockName) -> bool:
        self.asked.append(("has", name.digest))
        return super().has(name)

    def get(self, name: BlockName) -> bytes | None:
        self.asked.append(("get", name.digest))
        return super().get(name)


class Probed:
    """An engine with a tier on a clock that only computing moves."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._steps: list[tuple[int, int]] = []
        self._tier = Watched()
        self._engine = tiny_engine(
            on_step=self._on_step, clock=lambda: self._now_s, tiers=[self._tier]
        )

    def _on_step(self, plan: StepPlan) -> None:
        self._now_s += plan.num_tokens / 1000
        self._steps.append((plan.num_tokens, len(plan.block_copies)))

    def ask(self, prompt: list[int], salt: str) -> Seen:
        """Run a request alone, and return what whoever sent it could notice."""
        engine, trace = self._engine, RequestTrace()
        request = engine.make_request(
            prompt, SamplingParams(max_tokens=1), request_id="probe", cache_salt=salt
        )
        sequence = engine.prepare(request)
        seen = Seen(forecast_s=engine.forecast(sequence).ttft_s)
        began_s, self._steps, self._tier.asked = self._now_s, seen.steps, seen.asked_tiers
        engine.add(sequence, trace)
        while engine.has_work:
            engine.step()
        seen.ttft_s = self._now_s - began_s
        seen.num_cached_tokens = trace.num_cached_tokens
        return seen

    def close(self) -> None:
        self._engine.close()


def probe(primed: list[int], owner: str, *, evicted: bool) -> Seen:
    """What it looks like to ask for the secret, as ``bob``, after another prompt was asked for."""
    probed = Probed()
    probed.ask(primed, owner)
    if evicted:
        probed._engine.cache.clear()
    seen = probed.ask(SECRET, "bob")
    probed.close()
    return seen


@pytest.mark.parametrize("evicted", [False, True])
def test_time_work_forecast_and_tiers_tell_no_other_tenant_what_is_cached(evicted: bool) -> None:
    """P038: asked for by another tenant or by nobody, the prompt looks the same."""
    primed, fresh = (probe(tokens, "alice", evicted=evicted) for tokens in (SECRET, OTHER))
    assert primed == fresh
    assert primed.steps[0][0] == len(SECRET)
    assert primed.asked_tiers
    own = probe(SECRET, "bob", evicted=False)  # the probe can tell a hit
    assert own.ttft_s < primed.ttft_s / 5
    assert own.forecast_s < primed.forecast_s / 2
    assert own.num_cached_tokens == len(SECRET) - 1
