from __future__ import annotations

import pytest

from foreword.cli.overrides import parse_overrides
from foreword.errors import ConfigError


def test_values_take_the_options_types() -> None:
    words = ["isa=avx2", "num-threads = 3", "num_blocks=none", "enable_prefix_caching=off"]
    expected = {"isa": "avx2", "num_threads": 3, "num_blocks": None, "enable_prefix_caching": False}
    assert parse_overrides(words) == expected
    assert parse_overrides(["model=a=b"]) == {"model": "a=b"}
    assert parse_overrides([]) == {}


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("isa", "isa"),
        ("colour=red", "colour"),
        ("=3", ""),
        ("num_threads=two", "num_threads"),
        ("enable_prefix_caching=maybe", "enable_prefix_caching"),
        ("block_size=none", "block_size"),
    ],
)
def test_what_is_no_option_is_refused(word: str, option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_overrides([word])
    assert caught.value.option == option
