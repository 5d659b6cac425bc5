from __future__ import annotations

import pytest

from foreword.bench.load.workloads import Fixed, Mixed
from foreword.cli.overrides import parse_overrides
from foreword.config.engine import EngineOptions
from foreword.errors import ConfigError


def test_values_take_the_options_types() -> None:
    words = ["isa=avx2", "num-threads = 3", "num_blocks=none", "enable_prefix_caching=off"]
    expected = {"isa": "avx2", "num_threads": 3, "num_blocks": None, "enable_prefix_caching": False}
    assert parse_overrides(words, EngineOptions) == expected
    assert parse_overrides(["model=a=b"], EngineOptions) == {"model": "a=b"}
    assert parse_overrides([], EngineOptions) == {}


def test_lists_and_fractions() -> None:
    assert parse_overrides(["prompt_tokens=8,16"], Fixed) == {"prompt_tokens": (8, 16)}
    assert parse_overrides(["long_share=0.5"], Mixed) == {"long_share": 0.5}
    with pytest.raises(ConfigError):
        parse_overrides(["prompt_tokens=8,"], Fixed)


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
        parse_overrides([word], EngineOptions)
    assert caught.value.option == option
