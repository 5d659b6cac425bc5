"""The disk tier over HTTP: what a server has computed, the next one need not compute."""

from __future__ import annotations

from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from foreword.config.engine import EngineOptions
from foreword.engine.build import build_engine

pytestmark = pytest.mark.model

DOCUMENT = topics["assignment"][:4000]


def test_a_restarted_server_has_its_first_long_prompt_from_disk(
    smollm2_path: Path, tmp_path: Path, running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is, a block that is there is waited for.
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)

    def ask(question: str) -> tuple[str, Any, dict[str, Any]]:
        options = EngineOptions(
            model=str(smollm2_path), max_model_len=2048, kv_disk_path=str(tmp_path)
        )
        server = running(build_engine(options), served_model_name=["smollm2:135m"])
        try:
            answer = server.client().chat.completions.create(
                model="smollm2:135m",
                messages=[{"role": "user", "content": f"{DOCUMENT}\n\n{question}"}],
                temperature=0,
                max_tokens=8,
                extra_body={"timing": True},
            )
        finally:
            server.stop()
            server.join()
        return answer.choices[0].message.content, answer.usage, answer.model_extra["timing"]

    text, usage, timing = ask("What is it about?")
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert timing["active"]["cached_tokens"] == {"pool": 0}

    again, usage, timing = ask("What is it about?")
    loaded = (usage.prompt_tokens - 1) // 16 * 16
    assert again == text
    assert usage.prompt_tokens_details.cached_tokens == loaded
    assert timing["active"]["cached_tokens"] == {"pool": 0, "disk": loaded}
    assert "kv_load" in {part["part"] for part in timing["parts"]}

    _, usage, timing = ask("Who wrote it, and when?")
    cached = timing["active"]["cached_tokens"]
    assert loaded - 16 <= cached["disk"] == usage.prompt_tokens_details.cached_tokens
