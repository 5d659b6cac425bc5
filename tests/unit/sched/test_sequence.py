from __future__ import annotations

from support.scheduling import make_request

from foreword.config.cache import CacheConfig
from foreword.core.step import SequenceResult
from foreword.kv import KVCache
from foreword.kv.radix import Match
from foreword.sched.sequence import Sequence, TrackedRequest


def make_sequence(length: int) -> Sequence:
    cache = KVCache(CacheConfig(num_blocks=8, enable_prefix_caching=False), b"root")
    tracked = TrackedRequest(make_request("a", [1] * length, max_tokens=1))
    return Sequence.first(tracked, cache)


def compute(seq: Sequence, count: int) -> int:
    """Compute tokens, and say how many of them had been computed before."""
    return seq.take_in(seq.step(count), SequenceResult(seq.seq_id))


def test_recomputed_tokens_are_those_below_the_furthest_point() -> None:
    seq = make_sequence(40)
    seq.table.start(Match(), 40)
    assert compute(seq, 30) == 0
    seq.pause()
    seq.table.start(Match(), 40)
    assert compute(seq, 10) == 10
    seq.pause()  # not as far as the first time
    seq.table.start(Match(), 40)
    assert compute(seq, 20) == 20
    assert compute(seq, 20) == 10


def test_a_pause_keeps_the_known_tokens_and_nothing_else() -> None:
    seq = make_sequence(20)
    seq.table.start(Match(), 20)
    compute(seq, 20)
    seq.token_ids.append(5)
    seq.pause()
    assert seq.table.blocks == []
    assert seq.num_missing == 21
