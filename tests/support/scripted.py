"""An engine that answers from a script: every byte is a token, and prompts say what comes back."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foreword.backends.null import NullBackend
from foreword.backends.null.backend import NextToken
from foreword.config.cache import CacheConfig
from foreword.config.engine import EngineConfig
from foreword.config.scheduler import SchedulerConfig
from foreword.config.tiers import TierConfig
from foreword.core.step import SequenceStep, StepPlan
from foreword.engine.engine import Engine
from foreword.tiers.store import Tier

EOS = 256
_ALPHABET = b"abcdefghijklmnopqrstuvwxyz "


class ByteTokenizer:
    """Every byte is a token, and 256 ends a sequence."""

    vocab_size = 257
    bos_token_id = None
    eos_token_ids = frozenset({EOS})

    def encode(self, text: str, *, add_bos: bool | None = None, cache_salt: str = "") -> list[int]:
        del add_bos
        return list(text.encode(errors="replace"))

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        return self.encode_rendered(
            self.render_chat(messages, add_generation_prompt=add_generation_prompt)
        )

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return text + "assistant: " * add_generation_prompt

    def encode_rendered(self, text: str, *, cache_salt: str = "") -> list[int]:
        return self.encode(text)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        del skip_special
        return b"".join(self.token_bytes(token_id) for token_id in ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return b"" if token_id == EOS else bytes([token_id])

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")

    def detokenizer(self, *, continues_text: bool = False) -> ByteDetokenizer:
        del continues_text
        return ByteDetokenizer()


class ByteDetokenizer:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(b"" if token_id == EOS else bytes([token_id]))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def scripted(history: Sequence[int], step: SequenceStep, draw: int) -> int:
    """After ``…say:WORDS`` the answer is WORDS (to the end of the line); else the alphabet."""
    del draw
    prompt = bytes(history[: step.num_prompt_tokens])
    position = len(history) - step.num_prompt_tokens
    _, asked, words = prompt.rpartition(b"say:")
    if not asked:
        return _ALPHABET[position % len(_ALPHABET)]
    words = words.partition(b"\n")[0]
    return words[position] if position < len(words) else EOS


def tiny_engine(
    *,
    on_step: Callable[[StepPlan], None] | None = None,
    max_num_seqs: int = 64,
    max_num_batched_tokens: int = 512,
    max_model_len: int = 4096,
    num_blocks: int = 4096,
    scheduling_policy: str = "fcfs",  # whose steps do not depend on how long the last ones took
    clock: Callable[[], float] = time.monotonic,
    tiers: Sequence[Tier] = (),
    next_token: NextToken = scripted,
) -> Engine:
    backend = NullBackend(
        vocab_size=ByteTokenizer.vocab_size, next_token=next_token, on_step=on_step, clock=clock
    )
    config = EngineConfig(
        cache=CacheConfig(num_blocks=num_blocks),
        scheduler=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            scheduling_policy=scheduling_policy,
        ),
        tiers=TierConfig(memory_bytes=1 if tiers else 0),
        seed=0,
        choices=(),
    )
    tokenizer: Any = ByteTokenizer()
    return Engine(backend, tokenizer, config, model_name="tiny", clock=clock, tiers=tiers)
