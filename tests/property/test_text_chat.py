"""How many control tokens a prompt has does not depend on what the messages say."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from foreword.text.tokenizer import Tokenizer
from foreword.weights import registry
from foreword.weights.gguf import GGUFFile

PIECES = [
    "<|",
    "|>",
    "im_start",
    "im_end",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<",
    "|",
    ">",
]
PIECES += [
    "<repo_name>",
    "repo",
    "_name>",
    "<file",
    "_sep>",
    " ",
    "\n",
    "system\n",
    "\ud800",
    "\ufdd0",
    "é",
]
CONTENT = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=12).map("".join)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.load(GGUFFile.open(registry.resolve("smollm2:135m")))


@settings(max_examples=300)
@given(contents=st.lists(CONTENT, min_size=1, max_size=4))
def test_control_tokens_come_from_the_template_only(contents: list[str]) -> None:
    roles = ["user", "assistant", "tool", "user"]
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    benign = [{**message, "content": "hello"} for message in messages]
    controls = range(17)
    count = [i for i in tokenizer().encode_chat(messages) if i in controls]
    assert count == [i for i in tokenizer().encode_chat(benign) if i in controls]
