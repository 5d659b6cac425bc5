"""What the user asks for, and what it becomes: resolved once, frozen, explained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from foreword.config.cache import KV_CACHE_DTYPES, CacheConfig
from foreword.config.option import option
from foreword.config.scheduler import SCHEDULING_POLICIES, SchedulerConfig
from foreword.config.tiers import TierConfig
from foreword.errors import ConfigError

DEFAULT_MODEL = "smollm2:135m"

# Share of the memory that is free at start which the KV cache may take where nobody says more.
# The pool is mapped untouched, so what is never used costs nothing.
_KV_MEMORY_SHARE = 0.25

_NO_TIERS = TierConfig()

_INTEGER_ISAS = {"avx512_vnni", "avx512", "avx2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What a user may set; each field's ``help`` says what it means. None: `resolve` decides.

    Names are vLLM's where the meaning is the same. The command line is made from these fields.
    """

    model: str = option(
        DEFAULT_MODEL,
        "A name that `foreword models` lists, a .gguf file, or hf:org/repo/file.gguf.",
    )
    max_model_len: int | None = option(
        None, "Tokens (prompt + output) of a sequence. Default: the model's own context."
    )
    block_size: int = option(16, "Tokens in a KV block: a multiple of 16.")
    num_blocks: int | None = option(
        None, "KV blocks in the pool; wins over --kv-cache-memory-bytes."
    )
    kv_cache_memory_bytes: int | None = option(
        None,
        "Size of the KV pool. Default: a quarter of the free memory, or less if that is ample.",
    )
    kv_cache_dtype: str = option(
        "auto", "What keys and values are kept as: auto, float32, float16 or int8."
    )
    enable_prefix_caching: bool = option(
        True, "Keep computed KV blocks and reuse them for prompts that begin alike."
    )
    prefix_cache_ttl_s: float | None = option(
        None, "Seconds after which a block that nobody used is forgotten. Default: never."
    )
    kv_memory_bytes: int = option(
        0, "Memory for blocks that leave the pool; of use where the pool is on an accelerator."
    )
    kv_disk_path: str | None = option(
        None, "Folder for computed blocks, so that they outlive the pool and the process."
    )
    kv_disk_bytes: int = option(10 << 30, "How much of the disk they may take.")
    max_num_batched_tokens: int | None = option(
        None, "Tokens that one step may compute. Default: 512."
    )
    max_num_seqs: int | None = option(None, "Sequences that may run at once. Default: 64.")
    scheduling_policy: str = option(
        "shortest", f"Which prompts go first: {', '.join(SCHEDULING_POLICIES)}."
    )
    tpot_slo_ms: float | None = option(
        None,
        "Milliseconds that a step with running streams may take: prompts are cut to fit.",
    )
    num_threads: int | None = option(
        None, "Compute threads. Default: one for each core that the process may use."
    )
    compute: str = option(
        "auto",
        "Arithmetic of the linear layers: float32, int8 (activations rounded to 8 bits), or auto.",
    )
    isa: str = option("auto", "Kernels: auto, avx512_vnni, avx512, avx2, portable or reference.")
    seed: int | None = option(
        None, "Where seeds of requests without one come from. Default: drawn at start."
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting as it was resolved: for the table that is printed at start."""

    name: str
    value: object
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The engine's settings, complete and checked.

    Attributes:
        choices: each setting with the reason for its value.
    """

    cache: CacheConfig
    scheduler: SchedulerConfig
    tiers: TierConfig = _NO_TIERS
    seed: int | None
    choices: tuple[Choice, ...]


def choose_compute(options: EngineOptions, isa: str) -> Choice:
    """The linear layers' arithmetic, where ``isa`` are the kernels that will run.

    Raises:
        ConfigError: there is no such arithmetic.
    """
    asked = options.compute
    if asked not in ("auto", "int8", "float32"):
        raise ConfigError("compute", f"{asked!r} is not one of auto, int8, float32")
    if asked != "auto":
        return Choice("compute", asked, "as given")
    if isa in _INTEGER_ISAS:
        return Choice("compute", "int8", f"{isa} has fast products of integers")
    return Choice("compute", "float32", f"{isa} has no fast products of integers")


def choose_kv_cache_dtype(options: EngineOptions, compute: str) -> Choice:
    """What keys and values are kept as, where ``compute`` is the linear layers' arithmetic.

    Raises:
        ConfigError: there is no such type.
    """
    asked = options.kv_cache_dtype
    if asked in KV_CACHE_DTYPES:
        return Choice("kv_cache_dtype", asked, "as given")
    if asked != "auto":
        known = ", ".join(("auto", *KV_CACHE_DTYPES))
        raise ConfigError("kv_cache_dtype", f"must be one of {known}, not {asked!r}")
    return Choice("kv_cache_dtype", compute, f"as the layers compute: {compute}")


def resolve(
    options: EngineOptions,
    *,
    context_length: int,
    block_bytes: int,
    free_memory_bytes: int,
    kv_cache_dtype: Choice,
    made: Iterable[Choice] = (),
) -> EngineConfig:
    """Turn options into settings that fit the model and the machine.

    Args:
        options: what the user asked for.
        context_length: tokens that the model was made for.
        block_bytes: KV bytes of one block, over all layers.
        free_memory_bytes: memory that the process may still take.
        kv_cache_dtype: what `choose_kv_cache_dtype` says.
        made: other choices that were made before.

    Raises:
        ConfigError: an option has a value that cannot work.
    """
    choices = [*made, kv_cache_dtype]

    def choose(name: str, value: int, why: str) -> int:
        choices.append(Choice(name, value, why))
        return value

    _positive("block_size", options.block_size)
    if options.block_size >= context_length + 16:
        raise ConfigError(
            "block_size", f"{options.block_size} is over the model's context of {context_length}"
        )
    choose("block_size", options.block_size, _why(options, "block_size"))
    asked_len = _positive("max_model_len", options.max_model_len)
    if asked_len is not None and asked_len > context_length:
        raise ConfigError(
            "max_model_len", f"{asked_len} is over the model's context of {context_length} tokens"
        )
    max_num_seqs = _positive("max_num_seqs", options.max_num_seqs)
    max_num_seqs = choose("max_num_seqs", max_num_seqs or 64, _why(options, "max_num_seqs"))
    budget = _positive("max_num_batched_tokens", options.max_num_batched_tokens)
    why = _why(options, "max_num_batched_tokens")
    budget = choose("max_num_batched_tokens", budget or 512, why)

    model_len = asked_len or context_length
    num_blocks, why = _pool_size(options, model_len, max_num_seqs, block_bytes, free_memory_bytes)
    num_blocks = choose("num_blocks", num_blocks, why)
    pool_tokens = num_blocks * options.block_size
    if asked_len is not None and asked_len > pool_tokens:
        raise ConfigError(
            "max_model_len", f"{asked_len} is over the {pool_tokens} tokens that the KV pool holds"
        )
    if asked_len is not None:
        model_len = choose("max_model_len", asked_len, "as given")
    elif pool_tokens < model_len:
        model_len = choose("max_model_len", pool_tokens, "all that the KV pool holds")
    else:
        model_len = choose("max_model_len", model_len, "the model's context")

    why = _why(options, "enable_prefix_caching")
    choices.append(Choice("enable_prefix_caching", options.enable_prefix_caching, why))
    ttl_s = options.prefix_cache_ttl_s
    why = _why(options, "prefix_cache_ttl_s")
    choices.append(Choice("prefix_cache_ttl_s", "never" if ttl_s is None else ttl_s, why))
    why = _why(options, "scheduling_policy")
    choices.append(Choice("scheduling_policy", options.scheduling_policy, why))
    tpot_slo_ms = options.tpot_slo_ms
    why = _why(options, "tpot_slo_ms")
    choices.append(Choice("tpot_slo_ms", "none" if tpot_slo_ms is None else tpot_slo_ms, why))
    return EngineConfig(
        cache=CacheConfig(
            block_size=options.block_size,
            num_blocks=num_blocks,
            kv_cache_dtype=str(kv_cache_dtype.value),
            enable_prefix_caching=options.enable_prefix_caching,
            prefix_cache_ttl_s=inf if ttl_s is None else ttl_s,
        ),
        tiers=_tiers(options, choices),
        scheduler=SchedulerConfig(
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            max_model_len=model_len,
            scheduling_policy=options.scheduling_policy,
            tpot_slo_ms=options.tpot_slo_ms,
        ),
        seed=options.seed,
        choices=tuple(choices),
    )


def _tiers(options: EngineOptions, choices: list[Choice]) -> TierConfig:
    path = options.kv_disk_path
    tiers = TierConfig(
        memory_bytes=options.kv_memory_bytes,
        disk_path=None if path is None else Path(path).expanduser(),
        disk_bytes=options.kv_disk_bytes,
    )
    if not tiers.is_empty and not options.enable_prefix_caching:
        name = "kv_disk_path" if tiers.disk_path else "kv_memory_bytes"
        raise ConfigError(name, "is of no use without enable_prefix_caching")
    if tiers.memory_bytes:
        choices.append(Choice("kv_memory_bytes", tiers.memory_bytes, "as given"))
    if tiers.disk_path is not None:
        choices.append(Choice("kv_disk_path", str(tiers.disk_path), "as given"))
        why = _why(options, "kv_disk_bytes")
        choices.append(Choice("kv_disk_bytes", tiers.disk_bytes, why))
    return tiers


def _pool_size(
    options: EngineOptions,
    model_len: int,
    max_num_seqs: int,
    block_bytes: int,
    free_memory_bytes: int,
) -> tuple[int, str]:
    asked = _positive("num_blocks", options.num_blocks)
    asked_bytes = _positive("kv_cache_memory_bytes", options.kv_cache_memory_bytes)
    if asked is not None:
        _check_room("num_blocks", asked * block_bytes, free_memory_bytes)
        return asked, "as given"
    if asked_bytes is not None:
        _check_room("kv_cache_memory_bytes", asked_bytes, free_memory_bytes)
        if asked_bytes < block_bytes:
            raise ConfigError(
                "kv_cache_memory_bytes",
                f"{asked_bytes} holds no block: one takes {block_bytes} bytes",
            )
        return asked_bytes // block_bytes, "kv_cache_memory_bytes"
    blocks_of_a_sequence = -(-model_len // options.block_size)
    wanted = blocks_of_a_sequence * max_num_seqs
    affordable = int(free_memory_bytes * _KV_MEMORY_SHARE) // block_bytes
    if wanted <= affordable:
        return wanted, "max_num_seqs sequences of max_model_len"
    return max(affordable, 1), f"{_KV_MEMORY_SHARE:.0%} of the free memory"


def _check_room(name: str, pool_bytes: int, free_memory_bytes: int) -> None:
    """Refuse a pool that could be mapped, but not be filled."""
    if pool_bytes > free_memory_bytes:
        raise ConfigError(
            name,
            f"a KV pool of {pool_bytes:,} bytes does not fit the {free_memory_bytes:,} free ones",
        )


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(name, f"must be a whole number of at least 1, not {value!r}")
    return value


def _why(options: EngineOptions, name: str) -> str:
    default = EngineOptions.__dataclass_fields__[name].default
    return "default" if getattr(options, name) == default else "as given"
