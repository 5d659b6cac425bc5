"""An engine over tiers: what it promises whether blocks are being loaded or not."""

from __future__ import annotations

import pytest
from support.scripted import tiny_engine

from foreword.core.params import SamplingParams
from foreword.errors import InvalidRequestError
from foreword.tiers.memory import MemoryTier


def test_the_id_of_a_request_that_is_being_loaded_is_in_use() -> None:
    engine = tiny_engine(tiers=[MemoryTier(1 << 20)])
    request = engine.make_request([1] * 200, SamplingParams(max_tokens=1), request_id="a")
    engine.add(engine.prepare(request))
    assert not engine.scheduler.has_work  # it waits for its blocks
    with pytest.raises(InvalidRequestError, match="'a' is still being served"):
        engine.add(engine.prepare(request))
    deltas = []
    while engine.has_work:
        deltas += engine.step()
    assert [delta.finished for delta in deltas] == [True]
    engine.close()


def test_a_forecast_counts_what_tiers_have_as_loaded() -> None:
    engine = tiny_engine(num_blocks=70, tiers=[MemoryTier(1 << 20)], clock=lambda: 0.0)

    def serve(name: str, first: int) -> float:
        """Serve a prompt, and return how long its first token was thought to take."""
        prompt = [first, *[7] * 1000]
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        ready = engine.prepare(engine.make_request(prompt, params, request_id=name))
        forecast_s = engine.forecast(ready).ttft_s
        engine.add(ready)
        while engine.has_work:
            engine.step()
        assert engine._loader is not None
        assert engine._loader.store.flush()
        return forecast_s

    computed_s = serve("cold", 1)
    serve("other", 2)  # takes its place in the pool
    assert serve("warm", 1) < 0.1 * computed_s
    engine.close()
