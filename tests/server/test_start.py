"""Starting: `foreword serve` refuses nonsense and names the option, or it serves."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from support.tiny import TinyModel
from support.vocabularies import bpe_metadata

from foreword.backends.cpu.backend import CpuBackend
from foreword.cli.main import main
from foreword.config.engine import EngineOptions
from foreword.config.server import ServerConfig
from foreword.core.step import StepPlan, StepResult
from foreword.engine.async_engine import AsyncEngine

CONTEXT = 512  # of the tiny model


def knobs() -> Iterator[str]:
    """Every option with a number."""
    for config in (EngineOptions, ServerConfig):
        hints = get_type_hints(config)
        for field in fields(config):
            kinds = set(get_args(hints[field.name]) or [hints[field.name]])
            if kinds & {int, float}:
                yield field.name


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = TinyModel(vocab=257, layers=1)
    metadata = {**tiny.metadata(), **bpe_metadata("gpt-2", [], ["<end>"])}
    metadata["tokenizer.ggml.eos_token_id"] = 256
    return tiny.write(tmp_path_factory.mktemp("model"), metadata)


@pytest.fixture
def start(
    model: Path,
    running: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Return a function that types `foreword serve` and says why it was refused, or None."""
    served = []

    def serve(engine: AsyncEngine, config: ServerConfig) -> None:
        """Serve one request in place of serving for ever."""
        server = running(engine._engine, **{**asdict(config), "port": 0})
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 3})
        served.append(reply.status)
        server.stop()
        server.join()

    def start(*options: str) -> str | None:
        arguments = ["foreword", "serve", str(model), "--num-threads=1", *options]
        monkeypatch.setattr(sys, "argv", arguments)
        began_s = time.process_time()
        with pytest.raises(SystemExit) as ended:
            main()
        assert time.process_time() - began_s < 5.0
        if ended.value.code == 0:
            assert served in ([200], [413])  # 413: one that allows bodies of a byte
            return None
        assert not served
        return capsys.readouterr().err

    monkeypatch.setattr("foreword.server.serve.serve", serve)
    monkeypatch.setenv("COLUMNS", "200")
    return start


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1000000000"])
@pytest.mark.parametrize("name", list(knobs()))
def test_a_number_works_or_is_refused_by_name(start: Any, name: str, value: str) -> None:
    option = "--" + name.replace("_", "-")
    refusal = start(f"{option}={value}")
    if value in ("-1", "nan") and name != "seed":
        assert refusal is not None
    if refusal is not None:
        assert name in refusal or option in refusal
        assert "Traceback" not in refusal


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--block-size=17"], "block_size"),
        ([f"--block-size={CONTEXT + 16}"], "block_size"),
        ([f"--max-model-len={CONTEXT + 1}"], "max_model_len"),
        (["--num-blocks=4", "--max-model-len=65"], "max_model_len"),
        (["--kv-cache-memory-bytes=1"], "kv_cache_memory_bytes"),
        (["--kv-memory-bytes=1000000", "--no-enable-prefix-caching"], "kv_memory_bytes"),
        (["--cache-isolation=api-key"], "cache_isolation"),
    ],
)
def test_what_does_not_fit_together_is_refused(start: Any, options: list[str], option: str) -> None:
    assert option in start(*options)


@pytest.mark.parametrize(
    "options",
    [
        ["--num-blocks=1"],
        ["--num-blocks=4", "--max-num-batched-tokens=4096"],  # a step over the pool
        ["--max-num-batched-tokens=1", "--max-num-seqs=1"],
        [f"--block-size={CONTEXT}", "--num-blocks=1"],
        ["--tpot-slo-ms=1e-9"],
    ],
)
def test_what_is_odd_but_possible_serves(start: Any, options: list[str]) -> None:
    assert start(*options) is None


def test_it_has_computed_before_it_serves(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P014: nothing is left for the first request to load or to make."""
    events: list[int | str] = []
    execute = CpuBackend.execute

    def watched(backend: CpuBackend, plan: StepPlan) -> StepResult:
        events.append(plan.num_tokens)
        return execute(backend, plan)

    monkeypatch.setattr(CpuBackend, "execute", watched)
    monkeypatch.setattr("foreword.server.serve.serve", lambda *_: events.append("serves"))
    monkeypatch.setattr(sys, "argv", ["foreword", "serve", str(model), "--num-threads=1"])
    with pytest.raises(SystemExit):
        main()
    *computed, last = events
    assert last == "serves"
    assert {1, 16} <= set(computed)  # a stream's step and a prompt's
