from __future__ import annotations

import pytest

from foreword.core.request import Urgency
from foreword.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("priority", value) for value in (1.5, True, "1", 2**31, -(2**31))),
        *(("ttft_slo_ms", value) for value in (0, -1, float("nan"), float("inf"), 1e9, "5", True)),
    ],
)
def test_an_urgency_that_makes_no_sense_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=name) as caught:
        Urgency(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name
