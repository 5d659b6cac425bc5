"""`foreword run`: answer one prompt in the terminal."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from foreword.cli.options import takes
from foreword.cli.sampling import SamplingOptions
from foreword.config.engine import EngineOptions


@takes(SamplingOptions, panel="Sampling")
@takes(EngineOptions, panel="Engine", skip=("seed",))
def run(
    engine: EngineOptions,
    sampling: SamplingOptions,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    system: Annotated[str | None, typer.Option(help="A system message to begin with.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it is, without chat template.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer alone, no last line.")
    ] = False,
) -> None:
    """Answer one prompt, streaming, and say how long the first token took."""
    from foreword.cli.answer import stream_answer
    from foreword.cli.loading import load_engine
    from foreword.engine.llm import LLM

    began_s = time.monotonic()
    params = sampling.params()
    llm = LLM.from_engine(load_engine(engine))
    template = None if raw else llm.tokenizer.chat_template
    if template is not None:
        template.prepare()
    ready_s = time.monotonic() - began_s

    text = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})

    def encode() -> list[int]:
        if template is None:
            return llm.tokenizer.encode(text)
        return llm.tokenizer.encode_chat(messages)

    answer = stream_answer(llm, encode, params)
    llm.close()
    if not quiet:
        typer.echo(f"{answer} · ready in {ready_s * 1000:.0f} ms")
