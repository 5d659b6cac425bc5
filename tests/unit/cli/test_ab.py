"""How `foreword ab` reads its two sides."""

from __future__ import annotations

import sys

import pytest
import typer

from foreword.bench.ab.arms import Arm, split
from foreword.cli.ab import serve_options
from foreword.errors import ConfigError


def test_options_are_read_as_the_server_would() -> None:
    options = serve_options("a", ["gemma3:270m", "--compute", "float32", "--num-threads", "1"])
    assert (options.model, options.compute, options.num_threads) == ("gemma3:270m", "float32", 1)
    assert serve_options("a", ["--no-enable-prefix-caching"]).enable_prefix_caching is False


def test_a_port_is_ours_to_give() -> None:
    with pytest.raises(ConfigError, match="--port is not to be given"):
        serve_options("b", ["--port", "8000"])


@pytest.mark.parametrize("words", [["--nope"], ["--num-threads", "x"], ["model", "another"]])
def test_what_the_server_would_refuse_is_refused_before_anything_starts(words: list[str]) -> None:
    usage_error = typer.BadParameter.__mro__[1]
    with pytest.raises(usage_error):
        serve_options("a", words)


def test_urls_and_commands_are_told_from_options() -> None:
    url = Arm.parse("a", "http://127.0.0.1:1/v1")
    assert url is not None
    assert (url.url, url.command) == ("http://127.0.0.1:1/v1", None)
    command = Arm.parse("b", "env X='1 2' server --port {port}")
    assert command is not None
    assert command.command == ("env", "X=1 2", "server", "--port", "{port}")
    assert Arm.parse("a", "--compute int8") is None
    assert Arm.parse("a", "") is None
    with pytest.raises(ConfigError, match="No closing quotation"):
        split("a", "--model 'x")


def test_our_server_is_started_by_this_python() -> None:
    words = ["--compute", "int8"]
    arm = Arm.of_ours("--compute int8", words, serve_options("a", words))
    assert arm.command is not None
    assert arm.command[0] == sys.executable
    assert arm.command[-2:] == ("--compute", "int8")
    assert "{port}" in arm.command
