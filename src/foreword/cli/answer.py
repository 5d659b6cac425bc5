"""Show an answer while it is being generated."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foreword.core.params import SamplingParams
from foreword.engine.llm import LLM


@dataclass(frozen=True, slots=True)
class Answer:
    """What was shown, and how long it took.

    Attributes:
        ttft_s: from the prompt's text to the first text of the answer (or its end, if it is empty).
        decode_s: from there to the end.
    """

    text: str
    num_tokens: int
    ttft_s: float
    decode_s: float

    def __str__(self) -> str:
        """Say it in one line."""
        line = f"TTFT {self.ttft_s * 1000:.1f} ms · {self.num_tokens} tokens"
        if self.num_tokens > 1 and self.decode_s > 0:
            line += f" · {(self.num_tokens - 1) / self.decode_s:.1f} tok/s"
        return line


def stream_answer(llm: LLM, encode: Callable[[], Sequence[int]], params: SamplingParams) -> Answer:
    """Print an answer as it comes, on lines of its own, and return it.

    Ctrl-C stops the answer; what has come so far is returned.
    """
    began_s = time.monotonic()
    first_s: float | None = None
    text, num_tokens = "", 0
    try:
        for delta in llm.stream(encode(), params):
            for completion in delta.completions:
                sys.stdout.write(completion.text)
                sys.stdout.flush()
                first_s = first_s or time.monotonic()
                text += completion.text
                num_tokens += len(completion.token_ids)
    except KeyboardInterrupt:
        sys.stdout.write(" [stopped]")
    end_s = time.monotonic()
    first_s = first_s or end_s
    sys.stdout.write("\n")
    return Answer(text, num_tokens, first_s - began_s, end_s - first_s)
