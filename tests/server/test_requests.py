"""Where time went, asked of a real server: the parts add up, and agree with a client's clock."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest
from support.scripted import ByteTokenizer
from support.waiting import StepGate

from foreword.errors import BackendError

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def waterfall(server: Any, request_id: str) -> dict[str, Any]:
    found = server.get(f"/v1/requests/{request_id}/waterfall").json()
    assert found["id"] == request_id
    assert found["object"] == "request.waterfall"
    check_parts(found)
    return found


def check_parts(found: dict[str, Any]) -> None:
    """The parts have no gap and no overlap, and add up."""
    parts = found["parts"]
    assert parts[0]["start_ms"] == 0
    for before, after in pairwise(parts):
        assert before["start_ms"] + before["duration_ms"] == pytest.approx(after["start_ms"])
    total_ms = sum(part["duration_ms"] for part in parts)
    assert all(part["duration_ms"] > 0 for part in parts)
    if found["ttft_ms"] is not None:
        assert total_ms == pytest.approx(found["ttft_ms"], abs=1e-6)


def listed(server: Any, **query: Any) -> list[dict[str, Any]]:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    found: list[dict[str, Any]] = server.get(f"/v1/requests?{words}").json()["data"]
    return found


def chunks(body: bytes) -> list[dict[str, Any]]:
    *events, last = body.decode().removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (TEXT, {"prompt": "say:hello"}),
    "chat": (CHAT, {"messages": [{"role": "user", "content": "say:hello"}]}),
    "several completions": (TEXT, {"prompt": "say:hello", "n": 3}),
    "several prompts": (TEXT, {"prompt": ["say:hello", "x" * 100 + "say:yes", "say:no"]}),
    "token ids": (TEXT, {"prompt": list(b"say:hello")}),
    "chunks": (TEXT, {"prompt": "x" * 300 + "say:hello"}),
    "withheld": (TEXT, {"prompt": "say:hellx", "stop": ["hello", "zz"]}),
    "no text": (TEXT, {"prompt": "say:"}),
    "scored": (TEXT, {"prompt": "say:hello", "max_tokens": 0, "echo": True, "logprobs": 1}),
}


def test_parts_add_up_under_load(launch):
    server = launch(
        on_step=lambda plan: time.sleep(0.001), max_num_batched_tokens=64, num_blocks=48
    )

    def ask(number: int) -> None:
        path, body = list(SHAPES.values())[number % len(SHAPES)]
        options = {"stream": number % 2 == 0, "temperature": 0}
        assert server.post(path, {**body, **options}).status == 200

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(90)))
    whole = {"finished": 90}
    server.wait_for(lambda: server.get("/v1/stats").json()["window"]["requests"] == whole)
    found = listed(server, limit=1000)
    assert len(found) == 90
    seen = set()
    for summary in found:
        whole = waterfall(server, summary["id"])
        seen |= {part["part"] for part in whole["parts"]}
        seen |= {part.get("cause") for part in whole["parts"]}
        sums: dict[str, float] = {}
        for part in whole["parts"]:
            sums[part["part"]] = sums.get(part["part"], 0.0) + part["duration_ms"]
        assert summary["parts_ms"] == pytest.approx(sums, abs=1e-6)
        assert {key: summary[key] for key in summary if key != "parts_ms"} == {
            key: whole[key] for key in whole if key != "parts"
        }
    assert seen >= {"read", "parse", "template", "tokenise", "queue", "prefill", "write", "step"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_may_ask_for_its_own(server, shape, stream):
    path, body = SHAPES[shape]
    body = {**body, "stream": stream, "timing": True, "temperature": 0}
    if stream:
        answer = server.post(path, {**body, "stream_options": {"include_usage": True}}).body
        last = chunks(answer)[-1]
        assert last["choices"] == []
        alone = chunks(server.post(path, body).body)[-1]
        assert alone["choices"] == []
        assert alone["timing"]["id"] == alone["id"]
        assert "usage" not in alone
    else:
        last = server.post(path, body).json()
    timing = last["timing"]
    check_parts(timing)
    assert timing["id"] == last["id"]
    assert timing["status"] == "finished"
    assert timing["endpoint"] == path
    assert timing["stream"] == stream
    usage = last["usage"]
    assert timing["usage"] == {
        "prompt_tokens": usage["prompt_tokens"],
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "completion_tokens": usage["completion_tokens"],
    }
    later = waterfall(server, last["id"])
    assert later["active"] == timing["active"]
    assert later["active"]["backend"] == "null"
    if stream and shape in ("no text", "scored"):
        assert timing["ttft_ms"] is later["ttft_ms"] is None
    elif stream:
        assert later["parts"] == timing["parts"]
    else:  # it could not know how long its own writing would take
        kept = [part for part in later["parts"] if part["part"] != "write"]
        assert kept[:-1] == [part for part in timing["parts"] if part["part"] != "write"][:-1]
        assert later["ttft_ms"] > timing["ttft_ms"]


def test_without_asking_nothing_is_added(server):
    assert "timing" not in server.post(TEXT, {"prompt": "say:x"}).json()
    for body in ({"stream": True}, {"stream": True, "timing": False}):
        answer = server.post(TEXT, {"prompt": "say:x", **body}).body
        assert all(chunk["choices"] for chunk in chunks(answer))
    assert server.post(TEXT, {"prompt": "x", "timing": "yes"}).error["param"] == "timing"


def test_evidence_of_hits_and_chunks(launch):
    server = launch(max_num_batched_tokens=64)
    body = {"prompt": "x" * 200 + "say:a", "timing": True}
    first = server.post(TEXT, body).json()["timing"]["active"]
    again = server.post(TEXT, body).json()["timing"]["active"]
    assert (first["chunks"], first["cached_tokens"]) == (4, {"pool": 0})
    assert (again["chunks"], again["cached_tokens"]) == (1, {"pool": 204})
    assert (first["saved_ms"], again["saved_ms"] > 0) == (0.0, True)


def test_a_request_behind_a_long_one_names_it(launch):
    gate = StepGate()
    server = launch(on_step=gate, max_num_batched_tokens=64)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(server.post, TEXT, {"prompt": "x" * 640, "max_tokens": 1})
        server.wait_for(lambda: server.engine.steps.next_number == 1)
        short = pool.submit(server.post, TEXT, {"prompt": "say:a", "timing": True})
        server.wait_for(lambda: server.engine.stats().num_waiting == 1)
        gate.open()
        timing = short.result().json()["timing"]
        long_id = long.result().json()["id"]
    queue = [part for part in timing["parts"] if part["part"] == "queue"]
    assert [part["cause"] for part in queue] == ["step", "budget"]
    assert [part["behind"] for part in queue] == [
        [{"id": long_id, "tokens": 64}],
        [{"id": long_id, "tokens": 576}],
    ]


def test_aborted_failed_and_refused(launch):
    def on_step(plan: Any) -> None:
        time.sleep(0.002)
        if any(ord("!") in step.token_ids for step in plan.sequences):
            raise BackendError("poison")

    server = launch(on_step=on_step)
    assert server.post(TEXT, {"prompt": "!"}).status == 500
    assert server.post(TEXT, {"prompt": "x" * 5000}).status == 400
    assert server.post(TEXT, {"prompt": "x", "n": -1}).status == 400
    with server.connect() as connection:
        connection.sendall(raw_post({"prompt": "x", "max_tokens": 3000, "stream": True}))
        assert connection.recv(10)
    server.wait_for(lambda: listed(server)[0]["status"] == "aborted")
    aborted, failed = listed(server)
    assert (aborted["finish_reason"], failed["finish_reason"]) == ("abort", "error")
    assert (failed["status"], failed["ttft_ms"]) == ("failed", None)
    assert aborted["ttft_ms"] > 0
    for found in (aborted, failed):
        assert "prefill" in {part["part"] for part in waterfall(server, found["id"])["parts"]}


def test_a_running_request_is_listed_with_what_it_waits_for(launch):
    gate = StepGate()
    server = launch(on_step=gate)
    with server.connect() as connection:
        connection.sendall(raw_post({"prompt": "say:x", "stream": True}))
        server.wait_for(lambda: any("prefill" in found["parts_ms"] for found in listed(server)))
        [found] = listed(server)
        assert (found["status"], found["ttft_ms"], found["e2e_ms"]) == ("running", None, None)
        first_ms = sum(part["duration_ms"] for part in waterfall(server, found["id"])["parts"])
        later_ms = sum(part["duration_ms"] for part in waterfall(server, found["id"])["parts"])
        assert later_ms > first_ms
        gate.open()
        server.wait_for(lambda: listed(server)[0]["status"] == "finished")


def test_the_history_is_bounded_and_paged(launch):
    server = launch(request_history=7)
    ids = [server.post(TEXT, {"prompt": "say:x"}).json()["id"] for _ in range(10)]
    assert [found["id"] for found in listed(server)] == ids[:2:-1]
    page = server.get("/v1/requests?limit=4").json()
    assert ([found["id"] for found in page["data"]], page["has_more"]) == (ids[:5:-1], True)
    page = server.get(f"/v1/requests?limit=4&before={ids[6]}").json()
    assert ([found["id"] for found in page["data"]], page["has_more"]) == (ids[5:2:-1], False)
    gone = server.get(f"/v1/requests/{ids[0]}/waterfall")
    assert gone.status == 404
    assert "7" in gone.error["message"]
    assert server.get(f"/v1/requests?before={ids[0]}").status == 404


def test_without_a_history_a_request_can_still_ask(launch):
    server = launch(request_history=0)
    assert server.post(TEXT, {"prompt": "say:x", "timing": True}).json()["timing"]["ttft_ms"] > 0
    assert listed(server) == []
    assert server.get("/v1/requests/trace").json()["traceEvents"]


@pytest.mark.parametrize("request_id", ["nope", "a/b", "../x", "ü😀", "a b?c#d%", "<script>"])
def test_an_unknown_id_is_told_in_words(server, request_id):
    reply = server.get(f"/v1/requests/{quote(request_id, safe='')}/waterfall")
    assert reply.status == 404
    assert repr(request_id) in reply.error["message"]
    assert reply.error["code"] == "request_not_found"


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1e3"])
def test_a_limit_that_is_none(server, query):
    reply = server.get(f"/v1/requests?{query}")
    assert (reply.status, reply.error["param"]) == (400, "limit")
    assert server.get(f"/v1/requests/trace?{query.replace('limit', 'last')}").status in (200, 400)


def test_all_of_it_is_behind_the_key(launch):
    server = launch(api_key=["secret"])
    for path in ("/v1/requests", "/v1/requests/x/waterfall", "/v1/requests/trace"):
        assert server.get(path).status == 401
    headers = {"authorization": "Bearer secret"}
    assert server.send("GET", "/v1/requests", headers=headers).status == 200


def test_the_trace_is_what_perfetto_reads(launch):
    server = launch(max_num_batched_tokens=64, on_step=lambda plan: time.sleep(0.001))
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda n: server.post(TEXT, {"prompt": str(n) * 90}), range(12)))
    assert {reply.status for reply in replies} == {200}
    trace = server.get("/v1/requests/trace?last=10").json()
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(names) == 11
    assert set(names.values()) >= {found["id"] for found in listed(server, limit=10)}
    timed = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in timed} == {1, 2}
    for track in names:
        ends = 0.0
        for event in sorted((e for e in timed if (e["pid"], e["tid"]) == track), key=begins):
            assert event["ts"] >= ends - 0.002  # nothing overlaps on a track
            assert event["dur"] >= 0
            ends = event["ts"] + event["dur"]
    tokens = sum(e["args"]["tokens"] for e in timed if e["name"].startswith("step "))
    assert tokens >= 10 * 90


def begins(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["dur"]


# --- the client's clock


def raw_post(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def timed_by_client(connection: socket.socket, body: dict[str, Any]) -> tuple[float, str]:
    """Send a request on a raw socket; return milliseconds to the first content, and the id."""
    request = raw_post({"stream": True, **body})
    began = time.monotonic()
    connection.sendall(request)
    data = b""
    while b'"text":"' not in data:
        data += connection.recv(65536)
    first_ms = (time.monotonic() - began) * 1e3
    while not data.endswith(b"0\r\n\r\n"):
        data += connection.recv(65536)
    return first_ms, json.loads(data[data.index(b"{") : data.index(b"\n\n")])["id"]


def test_client_and_server_agree(launch):
    server = launch(on_step=lambda plan: time.sleep(0.01))
    remainders = []
    with server.connect() as connection:
        for number in range(30):
            client_ms, request_id = timed_by_client(connection, {"prompt": f"{number}say:abc"})
            server_ms = waterfall(server, request_id)["ttft_ms"]
            assert server_ms >= 10
            remainders.append(client_ms - server_ms)
    # The client's stretch holds the server's. What else is in it, a busy machine does not always
    # stretch; a part that was forgotten would always be there.
    assert 0 < min(remainders) < 5.0


def test_tokens_and_times_of_a_stream(launch):
    server = launch(on_step=lambda plan: time.sleep(0.005))
    request_id = server.post(TEXT, {"prompt": "say:abcdefgh", "stream": False}).json()["id"]
    found = waterfall(server, request_id)
    assert found["usage"]["completion_tokens"] == len("abcdefgh") + 1
    assert found["usage"]["prompt_tokens"] == len(ByteTokenizer().encode("say:abcdefgh"))
    assert found["tpot_ms"] >= 5
    assert found["tpot_ms"] * 8 <= found["e2e_ms"]
