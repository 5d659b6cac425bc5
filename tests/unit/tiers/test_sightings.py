from __future__ import annotations

import pytest

from foreword.tiers import sightings
from foreword.tiers.sightings import Sightings

DIGESTS = [bytes([number]) * 32 for number in range(5)]


def test_blocks_count_up_to_the_first_that_was_not_seen() -> None:
    seen = Sightings()
    assert seen.num_leading(DIGESTS) == 0
    for digest in (DIGESTS[0], DIGESTS[1], DIGESTS[3]):
        seen.note(digest, True)
    assert seen.num_leading(DIGESTS) == 2
    seen.note(DIGESTS[1], False)
    assert seen.num_leading(DIGESTS) == 1
    seen.clear()
    assert seen.num_leading(DIGESTS) == 0


def test_what_was_seen_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "_MOST", 3)
    seen = Sightings()
    for digest in (*DIGESTS[:3], DIGESTS[0], DIGESTS[3]):
        seen.note(digest, True)
    assert [seen.num_leading([digest]) for digest in DIGESTS] == [1, 0, 1, 1, 0]
