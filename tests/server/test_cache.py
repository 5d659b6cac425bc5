"""The prefix cache as operators and tenants see it, on a real socket."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest
from support.waiting import HANG_S

from foreword.config.server import ServerConfig
from foreword.core.step import StepPlan
from foreword.errors import ConfigError
from foreword.server.warm import read_prompts
from foreword.tiers.disk import DiskTier

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
LONG = "x" * 320


def cached(server, prompt=LONG + "say:a", key=None, **body) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    reply = server.send("POST", TEXT, {"prompt": prompt, **body}, headers)
    assert reply.status == 200, reply.body
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_salt_is_a_cache_of_its_own(launch):
    server = launch()
    assert cached(server) == 0
    assert cached(server, cache_salt="alice") == 0
    assert cached(server, cache_salt="bob") == 0
    assert cached(server, cache_salt="alice") == cached(server) == 324


@pytest.mark.parametrize("salt", ["", "x" * 1025, "x" * (1 << 20), 7, ["a"]])
def test_a_bad_salt_is_refused(server, salt):
    reply = server.post(TEXT, {"prompt": "x", "cache_salt": salt})
    assert (reply.status, reply.error["param"]) == (400, "cache_salt")


def test_keys_may_have_caches_of_their_own(launch):
    server = launch(api_key=["one", "two"], cache_isolation="api-key")
    assert cached(server, key="one") == 0
    assert cached(server, key="two") == 0
    assert cached(server, key="one") == 324
    assert cached(server, key="one", cache_salt="s") == 0
    assert cached(server, key="two", cache_salt="s") == 0


def test_keys_share_unless_told_otherwise(launch):
    server = launch(api_key=["one", "two"])
    assert cached(server, key="one") == 0
    assert cached(server, key="two") == 324


def test_isolation_needs_keys():
    with pytest.raises(ConfigError, match="needs at least one"):
        ServerConfig(cache_isolation="api-key")
    with pytest.raises(ConfigError, match="must be none or api-key"):
        ServerConfig(cache_isolation="tenant")


def test_a_warm_prompt_is_served_from_the_cache(launch):
    server = launch()
    warm = server.post("/v1/cache/warm", {"prompt": LONG})
    assert warm.json() == {"object": "cache.warm", "prompt_tokens": 320, "cached_tokens": 0}
    assert cached(server) == 320
    assert server.post("/v1/cache/warm", {"prompt": LONG}).json()["cached_tokens"] == 319


def test_the_beginning_of_conversations_can_be_warmed(launch):
    server = launch()
    system = {"role": "system", "content": LONG}
    warm = server.post("/v1/cache/warm", {"messages": [system]}).json()
    asked = {"messages": [system, {"role": "user", "content": "say:a"}], "max_tokens": 1}
    usage = server.post(CHAT, asked).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= warm["prompt_tokens"] - 1


def test_pins_hold_until_they_are_undone(launch):
    server = launch(num_blocks=64)
    pin = server.post("/v1/cache/pin", {"prompt": LONG, "ttl_s": 60}).json()
    assert (pin["prompt_tokens"], pin["pinned_tokens"]) == (320, 320)
    for number in range(6):  # more than the pool holds
        assert cached(server, prompt=f"{number}" * 600) == 0
    state = server.get("/v1/cache").json()
    assert state["blocks"]["pinned"] == 20
    assert state["pins"] == [{"id": pin["id"], "tokens": 320}]
    assert sum(state["blocks"][kind] for kind in ("free", "cached", "referenced")) == 64
    assert cached(server) == 320

    assert server.send("DELETE", f"/v1/cache/pin/{pin['id']}").status == 200
    assert server.send("DELETE", f"/v1/cache/pin/{pin['id']}").status == 404
    for number in range(6):
        cached(server, prompt=f"{number}" * 600)
    assert cached(server) == 0


@pytest.mark.parametrize("name", ["pin-0", "..%2F..%2Fetc", "%2Fetc%2Fpasswd", "x" * 5000, "%00"])
def test_undoing_a_pin_that_is_none_changes_nothing(server, name):
    before = server.get("/v1/cache").json()
    reply = server.send("DELETE", f"/v1/cache/pin/{name}")
    assert reply.status == 404
    assert len(reply.body) < 500
    assert server.get("/v1/cache").json() == before


def test_less_than_a_block_pins_nothing(launch):
    server = launch()
    pin = server.post("/v1/cache/pin", {"prompt": "x"}).json()
    assert pin["pinned_tokens"] == 0
    assert server.send("DELETE", f"/v1/cache/pin/{pin['id']}").status == 200
    assert server.get("/v1/cache").json()["blocks"]["pinned"] == 0


def test_a_pin_ends_by_itself(launch):
    server = launch()
    server.post("/v1/cache/pin", {"prompt": LONG, "ttl_s": 0.05})

    def unpinned() -> bool:
        cached(server, prompt="y")  # a step looks at the time
        return server.get("/v1/cache").json()["pins"] == []

    server.wait_for(unpinned)


def test_a_pin_gives_way_to_a_prompt_that_has_no_room_beside_it(launch):
    server = launch(num_blocks=64)
    for number, ttl_s in ((0, 600), (1, 60)):
        server.post("/v1/cache/pin", {"prompt": f"{number}" * 256, "ttl_s": ttl_s})
    assert cached(server, prompt="y" * 600) == 0  # 38 blocks, and 32 are pinned
    assert [pin["id"] for pin in server.get("/v1/cache").json()["pins"]] == ["pin-1"]
    assert cached(server, prompt="0" * 256 + "y") == 256


def test_what_is_warmed_with_priority_stays_longer(launch):
    server = launch(num_blocks=64)
    server.post("/v1/cache/warm", {"prompt": "a" * 320, "priority": -3})
    server.post("/v1/cache/warm", {"prompt": "b" * 320})
    for number in range(3):
        cached(server, prompt=f"{number}" * 640)
    assert cached(server, prompt="b" * 320) == 0
    assert cached(server, prompt="a" * 320) == 319


def test_only_half_of_the_pool_can_be_pinned(launch):
    server = launch(num_blocks=64)
    for number in range(2):
        pin = {"prompt": f"{number}" * 256}
        assert server.post("/v1/cache/pin", pin).status == 200
    refused = server.post("/v1/cache/pin", {"prompt": "2" * 256})
    assert refused.status == 400
    assert "32 of the pool's 64 may be pinned" in refused.error["message"]


@pytest.mark.parametrize("ttl_s", [0, -1, 1e12, "long"])
def test_a_bad_time_is_refused(server, ttl_s):
    reply = server.post("/v1/cache/pin", {"prompt": "x", "ttl_s": ttl_s})
    assert (reply.status, reply.error["param"]) == (400, "ttl_s")


@pytest.mark.parametrize("priority", [2**40, 0.5, "high"])
def test_a_bad_priority_is_refused(server, priority):
    reply = server.post("/v1/cache/warm", {"prompt": "x", "priority": priority})
    assert (reply.status, reply.error["param"]) == (400, "priority")


def test_warming_is_no_pinning(server):
    reply = server.post("/v1/cache/warm", {"prompt": "x", "ttl_s": 5})
    assert "/v1/cache/pin" in reply.error["message"]


def test_the_cache_can_be_cleared_in_all_tiers(launch, tmp_path):
    tier = DiskTier(tmp_path, 1 << 20)
    server = launch(tiers=[tier])
    cached(server)
    server.wait_for(lambda: len(list(tmp_path.rglob("*.kv"))) == 20)
    assert server.get("/v1/cache").json()["tiers"] == [{"name": "disk", "bytes": tier.num_bytes}]
    assert server.send("DELETE", "/v1/cache").json() == {"freed_blocks": 21}
    assert list(tmp_path.rglob("*.kv")) == []
    assert cached(server) == 0


class DeadDisk:
    """A tier on a disk that does nothing any more."""

    name = "disk"
    num_bytes = 0

    def fail(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    has = get = put = clear = fail


def test_a_server_lives_with_a_dead_disk_and_says_so_where_it_matters(launch):
    server = launch(tiers=[DeadDisk()])
    for _ in range(5):
        assert cached(server, prompt="y" * 300) in (0, 299)
    reply = server.send("DELETE", "/v1/cache")
    assert reply.status == 500
    assert "the pool is cleared" in reply.error["message"]
    assert "No space left" in reply.error["message"]
    assert cached(server, prompt="y" * 300) == 0


def test_warm_prompts_come_before_readiness(launch, tmp_path):
    lines = [{"prompt": LONG, "ttl_s": 60}, {"messages": [{"role": "user", "content": "y" * 99}]}]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    going_on = threading.Event()

    def hold(plan: StepPlan) -> None:
        going_on.wait(HANG_S)

    server = launch(on_step=hold, warm_prompts=str(path))
    assert server.get("/readyz").status == 503
    assert server.get("/livez").status == 200
    going_on.set()
    server.wait_for(lambda: server.get("/readyz").status == 200)
    assert cached(server) == 320
    assert len(server.get("/v1/cache").json()["pins"]) == 1


def test_a_warm_prompt_that_does_not_fit_is_passed_over(launch, tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "z" * 9999}, {"prompt": LONG}]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    server = launch(warm_prompts=str(path))
    server.wait_for(lambda: server.get("/readyz").status == 200)
    assert cached(server) == 320


def test_a_text_is_one_warm_prompt(tmp_path: Path):
    path = tmp_path / "system.txt"
    path.write_text("You are\nkind.")
    [body] = read_prompts(str(path))
    assert body.prompt == "You are\nkind."  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b'{"prompt": "x"}\n{"prompt": 7}', "line 2: prompt"), (b"{", "line 1"), (b"\xff", "cannot")],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, content: bytes, told: str):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        read_prompts(str(path))


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="No such file"):
        read_prompts(str(tmp_path / "none.jsonl"))
