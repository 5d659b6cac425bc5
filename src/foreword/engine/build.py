"""From options to a running engine: the one place where the parts are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foreword.backends.cpu.backend import CpuBackend, resolve_isa
from foreword.config.engine import (
    EngineOptions,
    choose_compute,
    choose_kv_cache_dtype,
    resolve,
)
from foreword.config.machine import free_memory_bytes
from foreword.config.tiers import TierConfig
from foreword.engine.engine import Engine
from foreword.kv import root_digest
from foreword.models.load import load_spec
from foreword.text.tokenizer import Tokenizer
from foreword.weights import registry
from foreword.weights.digest import file_digest
from foreword.weights.gguf import GGUFFile

if TYPE_CHECKING:
    from foreword.tiers.store import Tier


def build_engine(options: EngineOptions) -> Engine:
    """Open the model, and give back an engine that is ready to step.

    Raises:
        ModelNotFoundError, ModelFileError, UnsupportedModelError, ConfigError: see `LLM`.
    """
    path = registry.resolve(options.model)
    file = GGUFFile.open(path)
    spec = load_spec(file)
    isa = resolve_isa(options.isa)
    compute = choose_compute(options, isa)
    kv_cache_dtype = choose_kv_cache_dtype(options, str(compute.value))
    backend = CpuBackend(
        file,
        spec,
        block_size=options.block_size,
        num_threads=options.num_threads or 0,
        isa=isa,
        compute=str(compute.value),
        kv_cache_dtype=str(kv_cache_dtype.value),
        panel_folder=registry.cache_folder() / "panels",
    )
    config = resolve(
        options,
        context_length=spec.context_length,
        block_bytes=backend.block_bytes,
        free_memory_bytes=free_memory_bytes(),
        kv_cache_dtype=kv_cache_dtype,
        made=(compute,),
    )
    tokenizer = Tokenizer.load(file)
    parts = {
        "model": file.fingerprint,
        "arithmetic": str(compute.value).encode(),
        "kv_cache_dtype": config.cache.kv_cache_dtype.encode(),
    }
    tiers = _tiers(config.tiers)
    if tiers:  # blocks of other processes: the same numbers come of the same weights and code only
        parts["model"] = file_digest(path, registry.cache_folder() / "digests")
        parts["code"] = file_digest(backend.code_path, registry.cache_folder() / "digests")
        parts["isa"] = isa.encode()
    return Engine(
        backend,
        tokenizer,
        config,
        model_name=options.model,
        cache_root=root_digest(parts),
        context_cost=spec.context_cost,
        tiers=tiers,
    )


def _tiers(config: TierConfig) -> list[Tier]:
    if config.is_empty:
        return []  # and what they need is not imported: starting takes time
    from foreword.tiers.disk import DiskTier
    from foreword.tiers.memory import MemoryTier

    tiers: list[Tier] = []
    if config.memory_bytes:
        tiers.append(MemoryTier(config.memory_bytes))
    if config.disk_path is not None:
        tiers.append(DiskTier(config.disk_path, config.disk_bytes))
    return tiers
