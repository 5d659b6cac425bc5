"""How far one configuration's predictions are from another's, over a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foreword import __version__
from foreword.bench.divergence import Divergence, compare
from foreword.bench.machine import describe_machine, now_text
from foreword.core.ports import Backend
from foreword.core.step import SequenceStep, StepPlan
from foreword.errors import BackendError, ConfigError
from foreword.text.tokenizer import Tokenizer

SCHEMA = "foreword.eval/1"

_BLOCK_SIZE = 16
_LOGIT_BYTES = 64 * 2**20  # of one configuration, held at a time


@runtime_checkable
class GivesLogits(Protocol):
    """A backend that can be asked for whole distributions (`CpuBackend.logits`)."""

    @property
    def vocab_size(self) -> int:
        """How many logits a position has."""
        ...

    def logits(self, plan: StepPlan, rows: Sequence[int]) -> NDArray[np.float32]:
        """Run a step for the logits of ``rows``: ``[len(rows), vocab_size]``."""
        ...

    def describe(self) -> dict[str, Any]:
        """What runs and how."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """How much of the text is read.

    Attributes:
        windows: pieces of the text, evenly spaced.
        window_tokens: tokens of each; all but the last predict the next one, which is scored.

    Raises:
        ConfigError: a value that measures nothing.
    """

    windows: int = 4
    window_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.windows < 1:
            raise ConfigError("windows", f"must be at least 1, not {self.windows}")
        if self.window_tokens < 2:
            raise ConfigError("window_tokens", f"must be at least 2, not {self.window_tokens}")

    @property
    def num_blocks(self) -> int:
        """KV blocks that a backend needs."""
        return -(-self.window_tokens // _BLOCK_SIZE)

    def cut_text(self, tokenizer: Tokenizer, text: str) -> list[list[int]]:
        """`cut` a text into windows of a model's tokens.

        Raises:
            ConfigError: the text is too short.
        """
        bos = tokenizer.bos_token_id if tokenizer.add_bos else None
        return self.cut(tokenizer.encode(text, add_bos=False), bos)

    def cut(self, token_ids: Sequence[int], bos: int | None) -> list[list[int]]:
        """Cut a text into windows, the first at its start; each begins with ``bos``, where given.

        Raises:
            ConfigError: the text is too short.
        """
        head = [] if bos is None else [bos]
        length = self.window_tokens - len(head)
        if len(token_ids) < self.windows * length:
            raise ConfigError(
                "windows",
                f"{self.windows} of {self.window_tokens} tokens are more than the text's "
                f"{len(token_ids)}",
            )
        starts = [i * len(token_ids) // self.windows for i in range(self.windows)]
        return [[*head, *token_ids[start : start + length]] for start in starts]


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration under test: the backend, its own pool, and the options that made it."""

    backend: GivesLogits
    options: dict[str, Any]

    @classmethod
    def of(cls, backend: Backend, options: dict[str, Any]) -> Subject:
        """Take a backend whose pool has `EvalSettings.num_blocks` blocks that nobody else uses.

        Raises:
            BackendError: it cannot give logits.
        """
        if not isinstance(backend, GivesLogits):
            raise BackendError("this backend gives no logits")
        return cls(backend, options)

    def to_json(self) -> dict[str, Any]:
        """Options and what became of them."""
        return {"options": self.options, "backend": self.backend.describe()}


@dataclass(frozen=True, slots=True)
class EvalReport:
    """What was compared, and what came out."""

    created_at: str
    machine: dict[str, Any]
    model: str
    text: str
    settings: EvalSettings
    reference: Subject
    candidate: Subject
    result: Divergence

    def to_json(self) -> dict[str, Any]:
        """Give the report as plain data; ``schema`` names the format."""
        return {
            "schema": SCHEMA,
            "version": __version__,
            "created_at": self.created_at,
            "machine": self.machine,
            "model": self.model,
            "text": self.text,
            "settings": asdict(self.settings),
            "reference": self.reference.to_json(),
            "candidate": self.candidate.to_json(),
            "result": self.result.to_json(),
        }


def run_eval(
    reference: Subject,
    candidate: Subject,
    windows: Sequence[Sequence[int]],
    settings: EvalSettings,
    *,
    model: str,
    text: str,
    progress: Callable[[int, int], None] | None = None,
) -> EvalReport:
    """Compare two configurations over windows of token ids.

    Both compute the same few tokens before either goes on, so that memory holds one chunk's logits
    of each and no more, whatever the vocabulary.

    Args:
        text: where the windows come from, for the report.
        progress: called with tokens done and tokens in all.

    Raises:
        ConfigError: the configurations have different vocabularies.
        BackendError: a step failed, or logits are not finite.
    """
    vocab = reference.backend.vocab_size
    if candidate.backend.vocab_size != vocab:
        raise ConfigError(
            "reference", f"vocabularies differ: {vocab} and {candidate.backend.vocab_size}"
        )
    chunk = max(1, _LOGIT_BYTES // (4 * vocab))
    parts: list[Divergence] = []
    done, total = 0, sum(len(window) - 1 for window in windows)
    for window in windows:
        inputs, targets = window[:-1], np.array(window[1:], np.int64)
        for start in range(0, len(inputs), chunk):
            tokens = inputs[start : start + chunk]
            expected = _logits(reference.backend, tokens, start)
            got = _logits(candidate.backend, tokens, start)
            parts.append(compare(expected, got, targets[start : start + chunk]))
            done += len(tokens)
            if progress is not None:
                progress(done, total)
    return EvalReport(
        created_at=now_text(),
        machine=describe_machine(),
        model=model,
        text=text,
        settings=settings,
        reference=reference,
        candidate=candidate,
        result=Divergence.join(parts),
    )


def _logits(backend: GivesLogits, token_ids: Sequence[int], start: int) -> NDArray[np.float32]:
    """Compute tokens of the one sequence, which takes the pool's first blocks, for all logits."""
    table = range(-(-(start + len(token_ids)) // _BLOCK_SIZE))
    plan = StepPlan((SequenceStep(0, token_ids, start, table),))
    return backend.logits(plan, range(len(token_ids)))
