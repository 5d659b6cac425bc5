"""`foreword chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from foreword.cli.options import takes
from foreword.cli.sampling import SamplingOptions
from foreword.config.engine import EngineOptions
from foreword.core.params import SamplingParams
from foreword.errors import InvalidRequestError

if TYPE_CHECKING:
    from foreword.engine.llm import LLM

_HELP = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


@takes(SamplingOptions, panel="Sampling")
@takes(EngineOptions, panel="Engine", skip=("seed",))
def chat(
    engine: EngineOptions,
    sampling: SamplingOptions,
    system: Annotated[str | None, typer.Option(help="A system message to begin with.")] = None,
) -> None:
    """Talk with a model; it remembers the conversation."""
    from foreword.cli.loading import load_engine
    from foreword.engine.llm import LLM

    params = sampling.params()
    llm = LLM.from_engine(load_engine(engine))
    beginning = [{"role": "system", "content": system}] if system is not None else []
    messages = list(beginning)
    typer.echo(f"{llm.engine.model_name}: {_HELP}")
    while (text := _read_line()) not in (None, "/exit"):
        if text == "/reset":
            messages = list(beginning)
        else:
            messages = _answer(llm, [*messages, {"role": "user", "content": text}], params)
    llm.close()


def _answer(
    llm: LLM, messages: list[dict[str, str]], params: SamplingParams
) -> list[dict[str, str]]:
    """Show the answer to the last message and return the conversation as it stands then."""
    from foreword.cli.answer import stream_answer

    try:
        answer = stream_answer(llm, lambda: llm.tokenizer.encode_chat(messages), params)
    except InvalidRequestError as error:  # the conversation has outgrown the context
        typer.echo(f"error: {error}. /reset starts again.", err=True)
        return messages[:-1]
    typer.echo(f"[{answer}]\n")
    return [*messages, {"role": "assistant", "content": answer.text}]


def _read_line() -> str | None:
    """Return the next line that says something; None at the end of input."""
    import readline  # noqa: F401  # gives input() its history and line editing

    while True:
        try:
            if text := input("> ").strip():
                return text
        except KeyboardInterrupt:
            typer.echo(f"\n{_HELP}")
        except EOFError:
            typer.echo()
            return None
