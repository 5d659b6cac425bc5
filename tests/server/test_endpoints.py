"""The endpoints beside completions: models, tokens, probes, keys, documentation."""

from __future__ import annotations

import re

import openai
import pytest

TEXT = "/v1/completions"


def test_models_are_listed_and_described(server):
    client = server.client()
    [model] = client.models.list().data
    assert (model.id, model.owned_by) == ("tiny", "foreword")
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("huge")


def test_a_model_may_have_several_names(launch):
    server = launch(served_model_name=["org/first", "second"])
    assert [model["id"] for model in server.get("/v1/models").json()["data"]] == [
        "org/first",
        "second",
    ]
    assert server.get("/v1/models/org/first").status == 200
    for name in ("org/first", "second"):
        answer = server.post(TEXT, {"model": name, "prompt": "say:x"}).json()
        assert answer["model"] == "org/first"
    reply = server.post(TEXT, {"model": "tiny", "prompt": "say:x"})
    assert (reply.status, reply.error["param"]) == (404, "model")
    assert server.post(TEXT, {"prompt": "say:x"}).status == 200


def test_tokenize_and_back(server):
    reply = server.post("/tokenize", {"prompt": "hé", "return_token_strs": True}).json()
    assert reply["tokens"] == [104, 195, 169]
    assert (reply["count"], reply["max_model_len"]) == (3, 4096)
    assert reply["token_strs"][0] == "h"
    assert server.post("/detokenize", {"tokens": reply["tokens"]}).json() == {"prompt": "hé"}


def test_tokenize_a_conversation(server):
    messages = [{"role": "user", "content": "x"}]
    ids = server.post("/tokenize", {"messages": messages}).json()["tokens"]
    assert bytes(ids) == b"user: x\nassistant: "
    body = {"messages": messages, "add_generation_prompt": False}
    assert bytes(server.post("/tokenize", body).json()["tokens"]) == b"user: x\n"


@pytest.mark.parametrize("tokens", [[-1], [257], [2**40], ["a"], [1.5], [True], [[1]], None, "x"])
def test_detokenize_refuses_what_is_no_token(server, tokens):
    reply = server.post("/detokenize", {"tokens": tokens})
    assert reply.status == 400
    assert reply.error["param"].startswith("tokens")


@pytest.mark.parametrize(
    "body",
    [{}, {"prompt": 1}, {"prompt": None}, {"messages": []}, {"prompt": "x", "color": "red"}],
)
def test_tokenize_refuses_what_it_cannot_read(server, body):
    reply = server.post("/tokenize", body)
    assert reply.status == 400
    assert reply.error["param"]


def test_errors_of_the_router_have_openais_shape(server):
    for method, path, status in [
        ("GET", "/nowhere", 404),
        ("GET", TEXT, 405),
        ("POST", "/v1/models", 405),
        ("DELETE", "/metrics", 405),
    ]:
        reply = server.send(method, path)
        assert reply.status == status
        assert path in reply.error["message"]
        assert ("allow" in reply.headers) == (status == 405)


def test_version(server):
    assert re.fullmatch(r"\d+\.\d+\.\d+", server.get("/version").json()["version"])


def test_documentation_needs_no_other_server(server):
    page = server.get("/docs").body.decode()
    assert "http" not in page.replace("foreword: HTTP API", "")
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/metrics", "/livez"):
        assert path in page
    assert "max_completion_tokens" in page


def test_openapi_describes_bodies_and_its_references_resolve(server):
    document = server.get("/openapi.json").json()
    references = set(re.findall(r'"#/components/schemas/(\w+)"', str(document).replace("'", '"')))
    assert {"ChatRequest", "CompletionRequest", "Message"} <= references
    assert references <= set(document["components"]["schemas"])
    temperature = document["components"]["schemas"]["ChatRequest"]["properties"]["temperature"]
    assert {"type": "number"} in temperature["anyOf"]


def test_an_api_key_opens_everything_but_the_probes(launch):
    server = launch(api_key=["first key", "zweiter Schlüssel"])
    for path in ("/livez", "/readyz", "/health"):
        assert server.get(path).status == 200
    for path in ("/v1/models", "/metrics", "/docs", "/openapi.json", "/version", "/nowhere"):
        reply = server.get(path)
        assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
        assert reply.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer", "Bearer ", "Bearer first", "Basic first key", "first key"):
        assert server.send("GET", "/v1/models", headers={"Authorization": wrong}).status == 401
    for right in ("Bearer first key", "bearer  first key"):
        assert server.send("GET", "/v1/models", headers={"Authorization": right}).status == 200
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="guess").models.list()
    metrics = server.send("GET", "/metrics", headers={"Authorization": "Bearer first key"})
    assert b'foreword:errors_total{model_name="tiny",status="401"} 12.0' in metrics.body
    assert server.client(api_key="first key").models.list().data


def test_it_listens_on_ipv6_too(launch):
    server = launch(host="::1")
    assert server.host == "::1"
    assert server.get("/livez").status == 200
