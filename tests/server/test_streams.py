"""Streams have OpenAI's shape, checked by a state machine, and agree with whole answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from foreword.errors import BackendError

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@dataclass
class Choice:
    """What a stream said of one choice."""

    text: str = ""
    opened: bool = False
    finish_reason: str | None = None
    stop_reason: Any = None
    logprobs: list[Any] = field(default_factory=list)


def events(body: bytes) -> Iterator[str]:
    """Yield the data of each event; nothing else may be in the body."""
    text = body.decode()
    assert text.endswith("\n\n")
    for part in text[:-2].split("\n\n"):
        assert part.startswith("data: ")
        assert "\n" not in part
        yield part[len("data: ") :]


def check_stream(body: bytes, *, chat: bool, usage: bool) -> tuple[dict[int, Choice], Any]:
    """Walk a recorded stream; fail where it leaves OpenAI's grammar."""
    *chunks, last = events(body)
    assert last == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    shared = {(c["id"], c["object"], c["created"], c["model"]) for c in parsed}
    assert len(shared) == 1
    assert parsed[0]["object"] == ("chat.completion.chunk" if chat else "text_completion")

    reported = None
    if usage:
        final = parsed.pop()
        assert final["choices"] == []
        reported = final["usage"]
    choices: dict[int, Choice] = {}
    for chunk in parsed:
        assert chunk.get("usage", "absent") == (None if usage else "absent")
        [entry] = chunk["choices"]
        check_choice(choices.setdefault(entry["index"], Choice()), entry, chat=chat)
    assert all(choice.finish_reason for choice in choices.values())
    return choices, reported


def check_choice(choice: Choice, entry: dict[str, Any], *, chat: bool) -> None:
    assert choice.finish_reason is None, "a chunk after the finish chunk"
    text = entry["text"] if not chat else entry["delta"].get("content")
    if chat and not choice.opened:
        assert entry["delta"] == {"role": "assistant", "content": ""}
        assert entry["finish_reason"] is None
    elif entry["finish_reason"] is None:
        assert text, "a content chunk without content"
        assert set(entry["delta"] if chat else ()) <= {"content"}
    else:
        assert not text
        assert entry["finish_reason"] in {"stop", "length"}
        assert not chat or entry["delta"] == {}
        choice.finish_reason = entry["finish_reason"]
        choice.stop_reason = entry["stop_reason"]
    choice.opened = True
    choice.text += text or ""
    if entry["logprobs"] is not None:
        choice.logprobs += entry["logprobs"]["content" if chat else "tokens"]


def request(path: str, say: str, **more: Any) -> dict[str, Any]:
    if path == TEXT:
        return {"prompt": f"say:{say}", **more}
    return {"messages": [{"role": "user", "content": f"say:{say}"}], **more}


CASES = {
    "stop": ("hello world", {}),
    "length": ("hello world", {"max_tokens": 4}),
    "empty": ("", {}),
    "one token": ("x", {"max_tokens": 1}),
    "two choices": ("hello", {"n": 2}),
    "stop string": ("hello world", {"stop": ["o w"]}),
    "stop string at once": ("hello", {"stop": "h"}),
    "stop string that never comes": ("hello", {"stop": ["hellish", "o" * 100]}),
    "stop token": ("hello", {"stop_token_ids": [ord("l")]}),
    "characters of several tokens": ("aé😀本", {"max_tokens": 100}),
    "cut character": ("é😀", {"max_tokens": 4}),
}


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_has_the_shape_and_agrees_with_the_whole(server, path, case, usage, logprobs):
    say, more = CASES[case]
    body = request(path, say, **more)
    if logprobs:
        body |= {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    whole = server.post(path, body).json()
    options = {"stream_options": {"include_usage": True}} if usage else {}
    reply = server.post(path, {**body, "stream": True, **options})
    choices, reported = check_stream(reply.body, chat=path == CHAT, usage=usage)

    assert sorted(choices) == [entry["index"] for entry in whole["choices"]]
    for entry in whole["choices"]:
        streamed = choices[entry["index"]]
        assert streamed.text == (entry["message"]["content"] if path == CHAT else entry["text"])
        assert streamed.finish_reason == entry["finish_reason"]
        assert streamed.stop_reason == entry["stop_reason"]
        if logprobs:
            assert streamed.logprobs == entry["logprobs"]["content" if path == CHAT else "tokens"]
        else:
            assert entry["logprobs"] is None
            assert not streamed.logprobs
    for counts in [whole["usage"], *([reported] if usage else [])]:
        cached = counts.pop("prompt_tokens_details")["cached_tokens"]
        assert 0 <= cached < counts["prompt_tokens"]
        assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]
    assert reported in (None, whole["usage"])


@pytest.mark.parametrize(
    ("say", "stop", "shown"),
    [
        ("abcdef", ["cd"], "ab"),
        ("aabaac", ["aac"], "aab"),
        ("ababab", ["abc", "bab"], "a"),
        ("xé😀y", ["😀"], "xé"),
        ("no stop", ["stopper"], "no stop"),
    ],
)
def test_a_stop_string_never_leaks(server, say, stop, shown):
    reply = server.post(TEXT, request(TEXT, say, stop=stop, max_tokens=64, stream=True))
    choices, _ = check_stream(reply.body, chat=False, usage=False)
    assert choices[0].text == shown
    assert choices[0].finish_reason == "stop"


def test_headers_keep_proxies_from_buffering(server):
    headers = server.post(TEXT, request(TEXT, "x", stream=True)).headers
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("stream", [False, True])
def test_choices_are_numbered_over_prompts_and_completions(server, stream):
    body = {"prompt": ["say:a", "say:bb"], "n": 2, "echo": True}
    reply = server.post(TEXT, {**body, "stream": stream})
    if stream:
        choices, _ = check_stream(reply.body, chat=False, usage=False)
        texts = {index: choice.text for index, choice in choices.items()}
    else:
        texts = {entry["index"]: entry["text"] for entry in reply.json()["choices"]}
    assert texts == {0: "say:aa", 1: "say:aa", 2: "say:bbbb", 3: "say:bbbb"}


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_cached_tokens_are_reported_alike_with_and_without_a_stream(launch, path):
    server = launch()
    body = request(path, "x" * 100, n=2, max_tokens=1)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    cold = server.post(path, body).json()["usage"]
    warm = server.post(path, body).json()["usage"]
    _, streamed = check_stream(
        server.post(path, {**body, **options}).body, chat=path == CHAT, usage=True
    )
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    hit = cold["prompt_tokens"] - 1  # the last token is always computed
    assert warm["prompt_tokens_details"] == {"cached_tokens": hit}
    assert streamed == warm


def test_prompts_may_be_token_ids(server):
    for prompt in ([*b"say:ab"], [[*b"say:ab"]]):
        assert server.post(TEXT, {"prompt": prompt}).json()["choices"][0]["text"] == "ab"
    both = server.post(TEXT, {"prompt": [[*b"say:ab"], [*b"say:cd"]]}).json()
    assert [choice["text"] for choice in both["choices"]] == ["ab", "cd"]
    assert both["usage"]["prompt_tokens"] == 12


def test_one_bad_prompt_of_several_refuses_them_all(server):
    for stream in (False, True):
        reply = server.post(TEXT, {"prompt": [[1], [300]], "stream": stream})
        assert (reply.status, reply.error["param"]) == (400, "prompt")
    server.wait_for(lambda: server.idle)


def test_an_echo_carries_the_prompts_logprobs(server):
    body = {"prompt": "say:ab", "echo": True, "logprobs": 1, "stream": True}
    choices, _ = check_stream(server.post(TEXT, body).body, chat=False, usage=False)
    assert choices[0].text == "say:abab"
    assert choices[0].logprobs == [*"say:abab", ""]
    whole = server.post(TEXT, {**body, "stream": False}).json()["choices"][0]["logprobs"]
    assert whole["tokens"] == choices[0].logprobs
    assert whole["text_offset"] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert whole["token_logprobs"][0] is None
    assert all(value < 0 for value in whole["token_logprobs"][1:])


def test_prompt_logprobs_are_vllms(server):
    text = server.post(TEXT, {"prompt": "abc", "prompt_logprobs": 1, "max_tokens": 1}).json()
    first, second, _ = text["choices"][0]["prompt_logprobs"]
    assert first is None
    assert second[str(ord("b"))]["decoded_token"] == "b"
    chat = request(CHAT, "x", prompt_logprobs=0)
    assert len(server.post(CHAT, chat).json()["prompt_logprobs"]) == 23
    assert server.post(CHAT, {**chat, "stream": True}).error["param"] == "prompt_logprobs"


def test_the_openai_client_reads_both_endpoints(server):
    client = server.client()
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=[
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "say:"}]},
                {"role": "assistant", "content": "say:hi", "name": "bot"},
            ],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "hi"
    usage = chunks[-1].usage
    assert usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    answer = client.completions.create(model="tiny", prompt="say:hi", extra_body={"top_k": 5})
    assert answer.choices[0].text == "hi"
    assert answer.usage.prompt_tokens == 6


def test_the_openai_client_raises_its_own_errors(server):
    client = server.client()
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="tiny", messages=[])
    assert bad.value.param == "messages"


def test_an_error_in_a_stream_is_an_event_and_the_end(launch):
    steps = 0

    def fail_later(plan: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise BackendError("the third token is cursed")

    server = launch(on_step=fail_later)
    with pytest.raises(openai.APIError, match="cursed"):
        for _ in server.client().completions.create(model="tiny", prompt="x", stream=True):
            pass
    *_, last = events(server.post(TEXT, {"prompt": "x", "stream": True}).body)
    assert last == "[DONE]"  # the next request is fine


def test_an_error_before_the_first_token_is_a_status(launch):
    def fail(plan: object) -> None:
        raise BackendError("no luck")

    server = launch(on_step=fail)
    for stream in (False, True):
        reply = server.post(TEXT, {"prompt": "x", "stream": stream})
        assert (reply.status, reply.error["type"]) == (500, "server_error")
    assert server.get("/livez").status == 200


def test_an_unforeseen_error_is_a_500_that_tells_nothing(launch, caplog):
    server = launch()

    def encode(text: str, **options: str) -> list[int]:
        raise ValueError("a secret")

    server.engine.tokenizer.encode = encode
    for stream in (False, True):
        reply = server.post(TEXT, {"prompt": "x", "stream": stream})
        assert (reply.status, reply.error["type"]) == (500, "server_error")
        assert "secret" not in reply.error["message"]
    assert "a secret" in caplog.text
