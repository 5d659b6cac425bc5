"""A sketch's quantiles are those of the sorted numbers, within the 1 % that it promises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreword.metrics.sketch import Sketch

numbers = st.lists(st.floats(min_value=1e-6, max_value=1e5), min_size=1, max_size=200)
ranks = st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=5).map(sorted)


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    return sketch


@given(numbers, ranks)
def test_quantiles_are_right_within_one_per_cent(values, ranks):
    exact = [sorted(values)[math.floor(rank * (len(values) - 1))] for rank in ranks]
    assert sketch_of(values).quantiles(ranks) == pytest.approx(exact, rel=0.0101)


@given(numbers, numbers)
def test_a_sum_is_the_sketch_of_all(some, others):
    merged = sketch_of(some)
    merged.merge(sketch_of(others))
    whole = sketch_of(some + others)
    assert (merged.count, merged.max) == (whole.count, whole.max)
    assert merged.quantiles((0.5, 0.99)) == whole.quantiles((0.5, 0.99))


def test_memory_does_not_grow_with_the_count():
    sketch = sketch_of([0.1 + 0.001 * (step % 100) for step in range(10_000)])
    assert sketch.count == 10_000
    assert len(sketch._buckets) < 40


def test_an_empty_one_has_no_quantiles():
    with pytest.raises(ValueError, match="nothing"):
        Sketch().quantiles((0.5,))


def test_zero_counts():
    assert sketch_of([0.0, 0.0, 5.0]).quantiles((0.5,)) == pytest.approx([0.0], abs=2e-9)
