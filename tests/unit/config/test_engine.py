"""Options become settings that fit the model and the machine, or an error that names the option."""

from __future__ import annotations

import dataclasses

import pytest

from foreword.config.engine import (
    EngineConfig,
    EngineOptions,
    choose_compute,
    choose_kv_cache_dtype,
    resolve,
)
from foreword.errors import ConfigError

GIB = 2**30


def resolved(memory: int = 8 * GIB, **options: object) -> EngineConfig:
    asked = EngineOptions(**options)  # type: ignore[arg-type]
    return resolve(
        asked,
        context_length=2048,
        block_bytes=1 << 20,
        free_memory_bytes=memory,
        kv_cache_dtype=choose_kv_cache_dtype(asked, "float32"),
    )


def test_a_large_machine_gets_room_for_every_sequence() -> None:
    config = resolved(memory=100 * GIB, max_num_seqs=4)
    assert config.cache.num_blocks == 4 * 2048 // 16
    assert config.scheduler.max_model_len == 2048


def test_the_pool_takes_a_share_of_the_memory() -> None:
    assert resolved(memory=8 * GIB).cache.num_blocks == 2 * GIB >> 20


def test_a_small_pool_shortens_the_context_and_says_why() -> None:
    config = resolved(kv_cache_memory_bytes=10 << 20)
    assert config.scheduler.max_model_len == 160
    choice = next(c for c in config.choices if c.name == "max_model_len")
    assert "pool" in choice.why


def test_each_choice_says_whether_it_was_made_by_the_user() -> None:
    def whys(**options: object) -> dict[str, str]:
        return {choice.name: choice.why for choice in resolved(**options).choices}

    given = {"block_size": 32, "max_num_seqs": 3, "enable_prefix_caching": False}
    for name, value in given.items():
        assert whys()[name] == "default"
        assert whys(**{name: value})[name] == "as given"


def test_num_blocks_wins_over_bytes() -> None:
    assert resolved(num_blocks=7, kv_cache_memory_bytes=GIB).cache.num_blocks == 7


@pytest.mark.parametrize(
    "name",
    [
        "max_model_len",
        "num_blocks",
        "kv_cache_memory_bytes",
        "max_num_batched_tokens",
        "max_num_seqs",
        "block_size",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_nonsense_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(**{name: value})
    assert caught.value.option == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tpot_slo_ms", value) for value in (0.0, -1.0, float("nan"), float("inf"))),
        ("scheduling_policy", "random"),
    ],
)
def test_impossible_scheduling_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match="must be") as caught:
        resolved(**{name: value})
    assert caught.value.option == name


def test_a_context_over_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="2048"):
        resolved(max_model_len=2049)


@pytest.mark.parametrize(
    ("isa", "compute"),
    [("avx512_vnni", "int8"), ("avx2", "int8"), ("portable", "float32"), ("reference", "float32")],
)
def test_compute_follows_the_kernels_and_says_so(isa: str, compute: str) -> None:
    choice = choose_compute(EngineOptions(), isa)
    assert (choice.name, choice.value) == ("compute", compute)
    assert isa in choice.why
    for asked in ("int8", "float32"):
        assert choose_compute(EngineOptions(compute=asked), isa).value == asked
    assert (
        choice
        in resolve(
            EngineOptions(),
            context_length=64,
            block_bytes=1024,
            free_memory_bytes=GIB,
            kv_cache_dtype=choose_kv_cache_dtype(EngineOptions(), compute),
            made=(choice,),
        ).choices
    )


def test_an_unknown_compute_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        choose_compute(EngineOptions(compute="int4"), "avx2")
    assert caught.value.option == "compute"


def test_every_setting_is_explained() -> None:
    names = {choice.name for choice in resolved().choices}
    settings = {
        field.name
        for part in (resolved().cache, resolved().scheduler)
        for field in dataclasses.fields(part)
    }
    assert settings <= names


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_kv_cache_dtype_is_as_asked(dtype: str) -> None:
    config = resolved(kv_cache_dtype=dtype)
    assert config.cache.kv_cache_dtype == dtype
    assert [c.why for c in config.choices if c.value == dtype] == ["as given"]


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_kv_cache_dtype_follows_the_arithmetic(compute: str) -> None:
    choice = choose_kv_cache_dtype(EngineOptions(), compute)
    assert choice.value == compute
    assert compute in choice.why


def test_an_unknown_kv_cache_dtype_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="int8") as caught:
        resolved(kv_cache_dtype="fp8")
    assert caught.value.option == "kv_cache_dtype"
