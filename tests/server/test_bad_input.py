"""Whatever a client sends, it gets a 4xx that names the parameter, and the server lives."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from support.waiting import HANG_S

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
VALID: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "say:ok"}], "max_tokens": 2},
    TEXT: {"prompt": "say:ok", "max_tokens": 2},
}
NUMBERS = [
    *("n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty"),
    *("frequency_penalty", "repetition_penalty", "seed", "min_tokens", "prompt_logprobs"),
    *("priority", "ttft_slo_ms"),
]
NUMERIC_FIELDS = [
    *((path, field) for path in (CHAT, TEXT) for field in NUMBERS),
    (CHAT, "max_completion_tokens"),
    (CHAT, "top_logprobs"),
    (TEXT, "logprobs"),
]
# JSON that is never right for a number …
ALWAYS_WRONG = ["NaN", "Infinity", "-Infinity", "1e999", '"1"', "true", "[1]", "{}", "1" + "0" * 40]
# … and that is right for some.
SOMETIMES_WRONG = ["-1", "1e308", "-1e308", "0.5", "9223372036854775808", "-9223372036854775809"]
ACCEPTED = {
    "-1": {"presence_penalty", "frequency_penalty", "seed", "top_k", "priority"},
    "0.5": {
        *("temperature", "top_p", "min_p"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
        "ttft_slo_ms",
    },
    "9223372036854775808": {"seed"},
}


def with_raw(path: str, field: str, raw: str) -> bytes:
    """Return a valid body but for one field, whose JSON is ``raw``."""
    body = {**VALID[path], field: "HERE"}
    if field == "top_logprobs":
        body["logprobs"] = True
    return json.dumps(body).replace('"HERE"', raw).encode()


@pytest.fixture(autouse=True)
def _server_lives(server):
    yield
    assert server.post(TEXT, VALID[TEXT]).json()["choices"][0]["text"] == "ok"
    server.wait_for(lambda: server.idle)


@pytest.mark.parametrize(("path", "field"), NUMERIC_FIELDS)
def test_a_numeric_field_takes_nothing_but_its_numbers(server, path, field):
    for raw in ALWAYS_WRONG + SOMETIMES_WRONG:
        reply = server.post(path, with_raw(path, field, raw))
        if field in ACCEPTED.get(raw, ()):
            possible = {200, 429} if field == "ttft_slo_ms" else {200}  # nothing keeps half a ms
            assert reply.status in possible, (raw, reply.body)
            continue
        assert reply.status == 400, (raw, reply.body)
        assert reply.error["param"] == field, (raw, reply.error)
        assert field in reply.error["message"]
        assert reply.error["type"] == "invalid_request_error"
    assert server.post(path, with_raw(path, field, "null")).status == 200


@pytest.mark.parametrize(
    ("path", "field", "value", "param"),
    [
        (CHAT, "messages", [], "messages"),
        (CHAT, "messages", None, "messages"),
        (CHAT, "messages", "hello", "messages"),
        (CHAT, "messages", [{"role": "wizard", "content": "x"}], "messages[0].role"),
        (CHAT, "messages", [{"role": "tool", "content": "x"}], "messages[0].role"),
        (CHAT, "messages", [{"content": "x"}], "messages[0].role"),
        (CHAT, "messages", [{"role": "user"}], "messages[0].content"),
        (CHAT, "messages", [{"role": "user", "content": 1}], "messages[0].content"),
        (CHAT, "messages", [{"role": "user", "content": []}], "messages[0].content"),
        (
            CHAT,
            "messages",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content",
        ),
        (CHAT, "messages", [{"role": "user", "content": "x", "tool_calls": [1]}], None),
        (CHAT, "logprobs", 3, "logprobs"),
        (CHAT, "top_logprobs", 3, "top_logprobs"),  # without logprobs
        (CHAT, "tools", [{"type": "function"}], "tools"),
        (CHAT, "chat_template", "{{ messages }}", "chat_template"),
        (CHAT, "chat_template_kwargs", {"chat_template": "{{ 1 }}"}, "chat_template_kwargs"),
        (CHAT, "response_format", {"type": "json_object"}, "response_format"),
        (CHAT, "reasoning_effort", "high", "reasoning_effort"),
        (CHAT, "temperatur", 0.5, "temperatur"),
        (CHAT, "stream_options", {"include_usage": True}, "stream_options"),  # no stream
        (CHAT, "stream", "yes", "stream"),
        (TEXT, "prompt", [], "prompt"),
        (TEXT, "prompt", None, "prompt"),
        (TEXT, "prompt", {}, "prompt"),
        (TEXT, "prompt", [[]], "prompt"),
        (TEXT, "prompt", [1.5], "prompt"),
        (TEXT, "prompt", [-1], "prompt"),
        (TEXT, "prompt", [257], "prompt"),
        (TEXT, "prompt", [2**40], "prompt"),
        (TEXT, "prompt", [True], "prompt"),
        (TEXT, "prompt", [1, "a"], "prompt"),
        (TEXT, "prompt", [[1], [-1]], "prompt"),
        (TEXT, "prompt", [[[1]]], "prompt"),
        (TEXT, "prompt", ["a"] * 1025, "prompt"),
        (TEXT, "suffix", "the end", "suffix"),
        (TEXT, "best_of", 2, "best_of"),
        (TEXT, "stop", ["a"] * 65, "stop"),
        (TEXT, "stop", [""], "stop"),
        (TEXT, "stop", "x" * 1025, "stop"),
        (TEXT, "stop", [1], "stop"),
        (TEXT, "stop_token_ids", [257], "stop_token_ids"),
        (TEXT, "stop_token_ids", [-1], "stop_token_ids"),
        (TEXT, "stop_token_ids", [2**31], "stop_token_ids"),
        (TEXT, "stop_token_ids", [1] * 257, "stop_token_ids"),
        (TEXT, "logit_bias", {"257": 1}, "logit_bias"),
        (TEXT, "logit_bias", {"-1": 1}, "logit_bias"),
        (TEXT, "logit_bias", {"x": 1}, "logit_bias"),
        (TEXT, "logit_bias", {"1": 101}, "logit_bias"),
        (TEXT, "logit_bias", {str(i): 1 for i in range(1025)}, "logit_bias"),
        (TEXT, "n", 10**6, "n"),
        (TEXT, "min_tokens", 3, "min_tokens"),  # over max_tokens
        (TEXT, "model", 7, "model"),
        (TEXT, "user_", "x", "user_"),
    ],
)
def test_a_field_that_cannot_work_is_named(server, path, field, value, param):
    reply = server.post(path, {**VALID[path], field: value})
    assert reply.status == 400, reply.body
    assert reply.error["message"]
    if param is not None:
        assert reply.error["param"] == param


def test_values_in_ranges_work(server):
    body = {**VALID[TEXT], "stop": ["zz"] * 64, "logit_bias": {"256": -1.5, "0": 100}}
    assert server.post(TEXT, {**body, "stop_token_ids": [0, 255]}).status == 200


def test_parameters_that_cannot_change_the_answer_are_ignored(server):
    harmless = {
        "user": "me",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "tools": [],
        "tool_choice": "none",
        "response_format": {"type": "text"},
        "parallel_tool_calls": None,
        "reasoning_effort": None,
    }
    reply = server.post(CHAT, {**VALID[CHAT], **harmless})
    assert reply.json()["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"\x00", b'{"prompt": "\xff"}'),
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
        b'{"a": ' * 10**5,
        b"prompt=hello",
    ],
    ids=lambda body: repr(body[:16]),
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
def test_a_body_that_is_no_json_object_is_refused(server, path, body):
    reply = server.post(path, body)
    assert reply.status == 400
    assert reply.error["message"]


def test_long_lists_are_refused_without_being_walked(server):
    reply = server.post(TEXT, {**VALID[TEXT], "stop": [7] * 10**6})
    assert (reply.status, reply.error["param"]) == (400, "stop")
    assert "at most 64" in reply.error["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(server):
    with server.connect() as connection:
        head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: {50 * 10**6}\r\n\r\n"
        connection.sendall(head.encode())  # and no body
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_body_over_the_limit_in_chunks_is_refused(launch):
    server = launch(max_body_bytes=1000)
    with server.connect() as connection:
        head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"400\r\n" + b"x" * 0x400 + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_large_body_that_is_sent_to_the_end_gets_its_413(server):
    reply = server.post(TEXT, b"x" * (20 * 2**20))
    assert (reply.status, reply.error["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_prompt_over_the_context_is_refused_with_both_counts(server, path):
    text = "x" * 5000
    body = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    error = server.post(path, body).error
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == ("messages" if path == CHAT else "prompt")
    assert str(5000 + (18 if path == CHAT else 0)) in error["message"]
    assert "4096" in error["message"]


def test_a_prompt_that_fills_the_context(server):
    assert server.post(TEXT, {"prompt": "x" * 4096, "max_tokens": 1}).status == 400
    reply = server.post(TEXT, {"prompt": "x" * 4095, "max_tokens": 100})
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert reply.json()["usage"]["completion_tokens"] == 1


PART = b'{"type":"text","text":"a"}'
LARGE_BODIES = {
    "text": (TEXT, b'{"prompt":"%s"}' % (b"word " * 2_000_000), 400),
    "ids": (TEXT, b'{"prompt":[%s1],"echo":true}' % (b"97," * 2_000_000), 400),
    "members": (
        TEXT,
        b'{"prompt":"a",%s"k":1}' % b"".join(b'"%d":1,' % i for i in range(300_000)),
        400,
    ),
    "parts": (
        CHAT,
        b'{"messages":[{"role":"user","content":[%s%s]}]}' % ((PART + b",") * 300_000, PART),
        400,
    ),
    "detokenize": ("/detokenize", b'{"tokens":[%s97]}' % (b"97," * 2_000_000), 200),
    "tokenize": ("/tokenize", b'{"prompt":"%s","return_token_strs":true}' % (b"a" * 10**6), 200),
}


@pytest.mark.parametrize("kind", LARGE_BODIES)
def test_a_body_of_megabytes_does_not_hold_up_others(server, kind):
    """Between two turns of the event loop there is little work, counted in processor time.

    That of all threads: one that keeps Python to itself holds up the event loop too. Little is a
    few times what this machine takes to read the numbers of one body, which is done at one go.
    """
    path, body, status = LARGE_BODIES[kind]
    began_s = time.process_time()
    json.loads(LARGE_BODIES["ids"][1])
    reading_s = time.process_time() - began_s
    turns_s = []
    answered, over = threading.Event(), threading.Event()

    def turn() -> None:
        if answered.is_set():
            over.set()
        else:
            server.loop.call_later(0.001, turn)
        turns_s.append(time.process_time())

    server.loop.call_soon_threadsafe(turn)
    reply = server.post(path, body)
    answered.set()
    assert over.wait(HANG_S)
    assert reply.status == status, reply.body[:300]
    assert max(later_s - s for s, later_s in pairwise(turns_s)) < 10 * reading_s


def test_a_prompt_of_ten_megabytes_is_refused_with_both_counts(server):
    reply = server.post(TEXT, {"prompt": "word " * 2_000_000})
    assert reply.error["code"] == "context_length_exceeded"
    assert "10000000" in reply.error["message"]
    assert "4096" in reply.error["message"]


def test_parts_are_counted_over_all_messages(server):
    parts = [{"type": "text", "text": "a"}] * 4000
    messages = [{"role": "user", "content": parts}] * 3
    reply = server.post(CHAT, {"messages": messages, "max_tokens": 1})
    assert (reply.status, reply.error["param"]) == (400, "messages")


@pytest.mark.parametrize("token_id", [-1, 257, 2**40])
def test_an_echo_of_ids_that_are_none_is_refused(server, token_id):
    reply = server.post(TEXT, {"prompt": [97, token_id], "echo": True})
    assert (reply.status, reply.error["param"]) == (400, "prompt")


def test_any_text_survives(server):
    text = 'é"\\\u2028\x00\x1f😀ก็ل\ufffd'
    stream = server.client().completions.create(
        model="tiny", prompt="say:" + text, max_tokens=64, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == text


@pytest.mark.parametrize("tokens", range(1, 8))
def test_a_character_cut_by_max_tokens_is_replaced_the_same_way_in_a_stream(server, tokens):
    client = server.client()
    request = {"model": "tiny", "prompt": "say:a😀本", "max_tokens": tokens}
    whole = client.completions.create(**request).choices[0].text
    stream = client.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole
    assert whole.startswith("a")
    assert whole.endswith("\ufffd") == (tokens in {2, 3, 4, 6, 7})


@pytest.mark.parametrize(
    ("max_tokens", "generated"), [(0, 0), (1, 1), (5, 5), (4096, 86), (2**31 - 1, 86)]
)
def test_max_tokens_is_cut_to_the_context(server, max_tokens, generated):
    body = {"prompt": "x" * 4010, "max_tokens": max_tokens}
    answer = server.post(TEXT, body).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == generated


def test_max_tokens_zero_scores_the_prompt(server):
    request = {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}
    choice = server.post(TEXT, request).json()["choices"][0]
    assert choice["text"] == "abc"
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == 3
    assert choice["logprobs"]["token_logprobs"][0] is None


def test_a_thousand_connections_that_open_and_close(server):
    for number in range(1000):
        with server.connect() as connection:
            if number % 3 == 1:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
            elif number % 3 == 2:
                connection.sendall(
                    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"
                )


def test_what_is_no_http_gets_a_400(server):
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
