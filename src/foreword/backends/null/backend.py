"""A backend that computes nothing but behaves like one that does.

A block holds the ids of its tokens. What is sampled is a function of the ids that are read back
through the block table, as attention reads KV: a wrong table, a missed copy or a block with two
owners changes the output.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from foreword.core.step import (
    SequenceResult,
    SequenceStep,
    StepPlan,
    StepResult,
    TokenLogprob,
)
from foreword.errors import BackendError

_UNWRITTEN = 0xFFFFFFFF  # in a slot that no token has been written to
_SLOT_BYTES = 4

NextToken = Callable[[Sequence[int], SequenceStep, int], int]
"""From the history, the sequence's step and the draw, the token that comes next."""


def hashed_token(vocab_size: int) -> NextToken:
    """Tokens that look random and depend on what real sampling depends on.

    That is the history, and the seed and the draw unless sampling is greedy.
    """

    def next_token(history: Sequence[int], step: SequenceStep, draw: int) -> int:
        salt = b""
        if step.params is not None and not step.params.greedy:
            salt = f"{step.seed}/{draw}".encode()
        token_id = _hash(history, salt) % vocab_size
        while token_id in step.banned_token_ids:
            token_id = (token_id + 1) % vocab_size
        return token_id

    return next_token


class NullBackend:
    """See the module. A peer of the real backends, for tests and simulation.

    Args:
        vocab_size: token ids are below it.
        block_size: tokens in a block.
        next_token: what to sample; a hash of the history by default.
        on_step: called before each step is computed: to advance a virtual clock by the step's
            cost, to wait, or to raise. After an exception the slots that the step would have
            written are unwritten.
        clock: seconds; sampling is timed by it.
        keeps_contents: whether blocks hold anything. If not, nothing is checked either, and
            ``next_token`` is given an empty history: a step then costs next to nothing.
    """

    def __init__(
        self,
        *,
        vocab_size: int = 256,
        block_size: int = 16,
        next_token: NextToken | None = None,
        on_step: Callable[[StepPlan], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        keeps_contents: bool = True,
    ) -> None:
        self._vocab_size = vocab_size
        self._block_size = block_size
        self._next_token = next_token or hashed_token(vocab_size)
        self._on_step = on_step
        self._clock = clock
        self._keeps_contents = keeps_contents
        self._blocks: list[bytes] = []

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return self._vocab_size

    @property
    def block_bytes(self) -> int:
        """Bytes of a block: four for each slot."""
        return self._block_size * _SLOT_BYTES

    def allocate(self, num_blocks: int) -> None:
        """Make ``num_blocks`` blocks with nothing in them."""
        self._blocks = [_pack([_UNWRITTEN] * self._block_size)] * num_blocks

    def execute(self, plan: StepPlan) -> StepResult:
        """Write the plan's tokens to their blocks and sample.

        Raises:
            BackendError: a token id is outside the vocabulary, a block table is too short, or a
                sequence would read a slot that was never written.
        """
        for source, destination in plan.block_copies:
            self._blocks[destination] = self._blocks[source]
        if self._on_step is not None:
            try:
                self._on_step(plan)
            except BaseException:
                for step in plan.sequences:
                    self._write(step, [_UNWRITTEN] * len(step.token_ids))
                raise
        for step in plan.sequences if self._keeps_contents else ():
            if any(not 0 <= token_id < self._vocab_size for token_id in step.token_ids):
                raise BackendError(f"sequence {step.seq_id}: a token is outside the vocabulary")
            self._write(step, step.token_ids)
        began_s = self._clock()
        results = tuple(self._sequence(step) for step in plan.sequences)
        return StepResult(results, self._clock() - began_s)

    def read_block(self, block: int) -> bytes:
        """The ids in a block, four bytes each."""
        return self._blocks[block]

    def write_block(self, block: int, data: bytes) -> None:
        """Put back what `read_block` gave."""
        self._blocks[block] = data

    def describe(self) -> dict[str, Any]:
        """What this is."""
        return {"backend": "null", "vocab_size": self._vocab_size}

    def _write(self, step: SequenceStep, token_ids: Sequence[int]) -> None:
        if not self._keeps_contents:
            return
        written = 0
        while written < len(token_ids):
            index, slot = divmod(step.start + written, self._block_size)
            if index >= len(step.block_table):
                raise BackendError(f"sequence {step.seq_id}: its block table is too short")
            part = _pack(token_ids[written : written + self._block_size - slot])
            block, at = step.block_table[index], slot * _SLOT_BYTES
            old = self._blocks[block]
            self._blocks[block] = old[:at] + part + old[at + len(part) :]
            written += len(part) // _SLOT_BYTES

    def _read(self, step: SequenceStep) -> tuple[int, ...]:
        """All ids of the sequence up to the step's end, as its block table finds them."""
        if not self._keeps_contents:
            return ()
        stop = step.start + len(step.token_ids)
        data = b"".join([self._blocks[block] for block in step.block_table])
        history = struct.unpack_from(f"<{stop}I", data)
        if _UNWRITTEN in history:
            raise BackendError(
                f"sequence {step.seq_id}: position {history.index(_UNWRITTEN)} was never written"
            )
        return history

    def _sequence(self, step: SequenceStep) -> SequenceResult:
        history = self._read(step)
        tokens = tuple(self._next_token(history, step, draw) for draw in step.draws)
        params = step.params
        logprobs: tuple[TokenLogprob, ...] = ()
        prompt_logprobs: tuple[TokenLogprob, ...] = ()
        if params is not None and params.logprobs is not None:
            logprobs = tuple(self._score(history, token, params.logprobs) for token in tokens)
        if params is not None and params.prompt_logprobs is not None:
            prompt_logprobs = tuple(
                self._score(history[: step.start + offset + 1], token, params.prompt_logprobs)
                for offset, token in enumerate(step.score_token_ids)
            )
        return SequenceResult(step.seq_id, tokens, logprobs, prompt_logprobs)

    def _score(self, history: Sequence[int], token_id: int, num_top: int) -> TokenLogprob:
        """A made-up log-probability of ``token_id`` after ``history``."""
        rank = 1 + (_hash(history) + token_id) % self._vocab_size
        first = (token_id - rank + 1) % self._vocab_size
        top = tuple(((first + i) % self._vocab_size, -float(i + 1)) for i in range(num_top))
        return TokenLogprob(token_id, -float(rank), rank, top)


def _pack(token_ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def _hash(token_ids: Sequence[int], salt: bytes = b"") -> int:
    return int.from_bytes(
        hashlib.blake2b(_pack(token_ids) + salt, digest_size=8).digest(), "little"
    )
