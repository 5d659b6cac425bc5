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
