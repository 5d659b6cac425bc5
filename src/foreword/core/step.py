"""What a backend is asked to do in one step, and what it answers. Plain data, nothing else.

One rule covers all token work: a sequence has *known* tokens and *computed* tokens, and a step lets
computed catch up with known. A prompt, a chunk of one, and a decode step differ only in counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foreword.core.params import SamplingParams
from foreword.core.trace import NO_NOTES, PlanNotes


@dataclass(slots=True)  # not frozen: a stream's is moved on to its next token, not made again
class SequenceStep:
    """The part of one sequence in a step. Valid until the step's results are taken in.

    Attributes:
        seq_id: the scheduler's name for the sequence.
        token_ids: the tokens to compute; they stand at positions ``start … start+len-1``.
        start: how many tokens of the sequence are computed already (and are in its blocks).
        block_table: pool indices of the blocks that cover positions ``0 … start+len-1``.
        draws: completion indices to sample from the last token's logits. Empty: nothing is
            sampled, since the chunk ends before the last known token or only the prompt was asked
            for. Several: a prompt with ``n > 1``, whose completions part here.
        params: how to sample and score. Set where ``draws`` or ``score_token_ids`` is not empty.
        seed: seed of the random numbers; a draw uses (seed, completion index, position) only.
        history: all known tokens, prompt first; set only where penalties look at it.
        num_prompt_tokens: how many of them are the prompt.
        banned_token_ids: ids that may not be sampled now (end of sequence before ``min_tokens``).
        score_token_ids: for ``prompt_logprobs``: the token that follows each of ``token_ids`` in
            the prompt. Shorter than ``token_ids`` by one at the prompt's end; empty: not wanted.
    """

    seq_id: int
    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    draws: Sequence[int] = ()
    params: SamplingParams | None = None
    seed: int = 0
    history: Sequence[int] = ()
    num_prompt_tokens: int = 0
    banned_token_ids: Sequence[int] = ()
    score_token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All token work of one step.

    Attributes:
        sequences: each sequence at most once.
        block_copies: ``(source, destination)`` blocks to copy before anything is computed
            (copy-on-write of a block that several sequences share).
        notes: for whoever asks later why something waited; backends do not look at it.
    """

    sequences: tuple[SequenceStep, ...]
    block_copies: tuple[tuple[int, int], ...] = ()
    notes: PlanNotes = NO_NOTES

    @property
    def num_tokens(self) -> int:
        """Tokens to compute, over all sequences."""
        return sum(len(s.token_ids) for s in self.sequences)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token, and of the likeliest ones at its position.

    Taken from the model's own distribution, before ``logit_bias``, penalties and temperature.

    Attributes:
        rank: 1 for the likeliest token of the vocabulary.
        top: ``(token id, logprob)``, likeliest first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)  # not frozen: that takes four times as long to make, for every token
class SequenceResult:
    """What a step found out about one sequence.

    Attributes:
        token_ids: one sampled token for each of the step's ``draws``.
        logprobs: the same length as ``token_ids`` where ``params.logprobs`` is set; else empty.
        prompt_logprobs: one for each of ``score_token_ids``.
    """

    seq_id: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results in the order of the plan's sequences, one for each.

    Attributes:
        sampling_s: seconds that went into sampling and scoring.
    """

    sequences: tuple[SequenceResult, ...]
    sampling_s: float = 0.0
