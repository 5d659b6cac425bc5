"""Show an answer while it is being generated."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from foreword.core.params import SamplingParams
from foreword.engine.llm import LLM


@dataclass(frozen=True, slots=True)
class Answer:
    """What was shown, and how long it took.

    Attributes:
        num_tokens: all of them; the first text may have taken several.
        num_first_tokens: those that came with the first text.
        ttft_s: from the prompt's text to the first text of the answer (or its end, if it is empty).
        decode_s: from there to the end.
    """

    text: str
    num_tokens: int
    num_first_tokens: int
    ttft_s: float
    decode_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        line = f"TTFT {self.ttft_s * 1000:.1f} ms · {self.num_tokens} tokens"
        num_later_tokens = self.num_tokens - self.num_first_tokens
        if num_later_tokens > 0:
            line += f" · {num_later_tokens / self.decode_s:.1f} tok/s"
        return line


def stream_answer(llm: LLM, encode: Callable[[], Sequence[int]], params: SamplingParams) -> Answer:
    """Print an answer as it comes, on lines of its own, and return it.

    Ctrl-C stops the answer; what has come so far is returned.
    """
    began_s = time.monotonic()
    first_s: float | None = None
    text, num_tokens, num_first_tokens = "", 0, 0
    with _watching_ctrl_c() as stopped:
        for delta in llm.stream(encode(), params, cancelled=lambda: bool(stopped)):
            for completion in delta.completions:
                sys.stdout.write(completion.text)
                sys.stdout.flush()
                text += completion.text
                num_tokens += len(completion.token_ids)
                if first_s is None:
                    first_s, num_first_tokens = time.monotonic(), num_tokens
    end_s = time.monotonic()
    first_s = first_s or end_s
    sys.stdout.write(" [stopped]\n" if stopped else "\n")
    return Answer(text, num_tokens, num_first_tokens, first_s - began_s, end_s - first_s)


@contextmanager
def _watching_ctrl_c() -> Iterator[list[int]]:
    """Let Ctrl-C fill a list rather than interrupt a step, which would leave it half done."""
    stopped: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: stopped.append(number))
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
