"""What becomes of a server, and of its answers, when the folder of blocks does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import openai
import pytest
from support import cache_server
from support.cache_server import slow_step
from support.faulty_disks import as_nobody
from support.waiting import HANG_S, wait_for

from foreword.bench.served import ServedProcess
from foreword.tiers.disk import DiskTier

TEXT = "/v1/completions"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a block that is there is waited for."""
    monkeypatch.setattr("foreword.tiers.store.MAX_LOSS", 1000.0)


def ask(server, text: str) -> int:
    """Check the answer to a prompt; return how much of it was cached."""
    reply = server.post(TEXT, {"prompt": f"{text * 600}say:{text}", "max_tokens": 8})
    assert reply.status == 200, reply.body
    assert reply.json()["choices"][0]["text"] == text
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def blocks(folder: Path) -> int:
    return len(list(folder.rglob("*.kv")))


def total_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.kv"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            total += path.stat().st_size
    return total


def test_a_folder_that_is_removed_is_missed_and_made_again(launch, tmp_path):
    folder = tmp_path / "blocks"
    server = launch(tiers=[DiskTier(folder, 1 << 20)], num_blocks=40, on_step=slow_step)
    ask(server, "a")
    server.wait_for(lambda: blocks(folder) == 37)
    shutil.rmtree(folder)
    assert ask(server, "b") == 0
    server.wait_for(lambda: blocks(folder) == 37)
    ask(server, "c")  # takes the place of b in the pool
    assert ask(server, "b") >= 592
    assert server.idle


def test_a_folder_that_may_not_be_used_any_more_costs_hits_and_nothing_else(launch, tmp_path):
    folder = tmp_path / "blocks"
    server = launch(tiers=[DiskTier(folder, 1 << 20)], num_blocks=40, on_step=slow_step)
    ask(server, "a")
    server.wait_for(lambda: blocks(folder) == 37)
    with as_nobody():
        for text in "bcdea":
            assert ask(server, text) < 600
        reply = server.send("DELETE", "/v1/cache")
        assert reply.status == 500
        assert "Permission denied" in reply.error["message"]
    assert blocks(folder) == 37
    assert server.idle


@pytest.fixture
def two_servers(tmp_path: Path) -> Iterator[list[str]]:
    command = [sys.executable, cache_server.__file__, "--port", "{port}"]
    command += ["--folder", str(tmp_path), "--limit-bytes", "40000"]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(Path(cache_server.__file__).parents[1]))
        servers = [ServedProcess(name, command, ready_path="/readyz") for name in ("one", "two")]
        for server in servers:
            stack.callback(server.close)
        for server in servers:
            server.wait_until_ready(HANG_S)
        yield [server.url for server in servers]


def test_two_servers_share_a_folder_within_its_limit(
    two_servers: list[str], tmp_path: Path
) -> None:
    def cached(url: str, text: str) -> int:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            answer = client.completions.create(model="tiny", prompt=text * 800, max_tokens=1)
        return answer.usage.prompt_tokens_details.cached_tokens

    one, two = two_servers
    assert cached(one, "a") == 0
    wait_for(lambda: blocks(tmp_path) >= 49)
    assert cached(two, "a") == 784
    for text in "bcdefgh":  # 50 blocks each, of which the folder holds some 160
        assert cached(one, text) == cached(two, text.upper()) == 0
        assert total_bytes(tmp_path) <= 40_000
