"""A step in the making."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import compress

from foreword.core.step import SequenceStep, StepPlan
from foreword.core.trace import Chunk, HeldBack, PlanNotes
from foreword.sched.cost import StepLoad
from foreword.sched.sequence import Sequence


class Batch:
    """The sequences that a step will compute, and what is to be told of their choice.

    Attributes:
        budget: tokens that may still be added.
        num_tokens: tokens in it.
        sequences, steps: those in it, streams first.
        admitted: those of them that waited before.
        slots: completions that the sequences in it stand for, and the part-way ones.
        load: what has been added, as the cost model sees it.
        num_ending: prompts whose last tokens are in it.
        blocked: the first prompt in line for which there are not enough blocks.
        held_back, deferred, preempted: see `PlanNotes`.
    """

    __slots__ = (
        "_block_size",
        "_num_streams",
        "admitted",
        "block_copies",
        "blocked",
        "budget",
        "chunks",
        "deferred",
        "held_back",
        "load",
        "num_decodes",
        "num_ending",
        "num_tokens",
        "preempted",
        "sequences",
        "slots",
        "steps",
    )

    def __init__(self, budget: int, block_size: int) -> None:
        self.budget = budget
        self.num_tokens = 0
        self._block_size = block_size
        self.sequences: list[Sequence] = []
        self.steps: list[SequenceStep] = []
        self.admitted: list[Sequence] = []
        self.block_copies: list[tuple[int, int]] = []
        self.chunks: list[Chunk] = []
        self.slots = 0
        self._num_streams = 0
        self.load = StepLoad()
        self.num_decodes = 0
        self.num_ending = 0
        self.blocked: Sequence | None = None
        self.held_back: HeldBack | None = None
        self.deferred: list[str] = []
        self.preempted: list[str] = []

    def add_streams(self, streams: Iterable[Sequence]) -> None:
        """Plan the single token that each of some sequences misses. To be called first, and once.

        A prompt's last token may be among them.
        """
        self.sequences = list(streams)
        self.steps = [seq.next_step or seq.step(1) for seq in self.sequences]
        self._took(len(self.steps))
        self.load.decodes = len(self.steps)
        self.load.decode_context = sum([step.start for step in self.steps]) + len(self.steps)
        self.slots += len(self.steps)
        for seq in [seq for seq in self.sequences if seq.next_step is None]:
            self.slots += len(seq.draws) - 1
            if not seq.is_stream:
                self._note_chunk(seq, 1)
        self.num_decodes = len(self.steps) - len(self.chunks)
        self._num_streams = len(self.steps)

    def add(self, seq: Sequence, count: int) -> None:
        """Plan the next ``count`` tokens of a prompt."""
        self._took(count)
        self.sequences.append(seq)
        self.steps.append(seq.step(count))
        self.load.add(count, seq.num_computed)
        self._note_chunk(seq, count)

    @property
    def prompts(self) -> Iterator[tuple[Sequence, SequenceStep]]:
        """The sequences that are no streams, with their steps."""
        part = slice(self._num_streams, None)
        return zip(self.sequences[part], self.steps[part], strict=True)

    @property
    def request_ids(self) -> list[str]:
        """Whose sequences are in it and have not ended."""
        live = (seq for seq in self.sequences if not seq.ended)
        return list(dict.fromkeys(seq.tracked.request.request_id for seq in live))

    @property
    def lost_request_ids(self) -> list[str]:
        """Those of them whose block copies could not be made again once it has run.

        A source may have been given up for this very step, which then wrote to it.
        """
        size = self._block_size
        written: dict[int, int] = {}  # from which slot on
        for step in self.steps:
            first = step.start // size
            written |= dict.fromkeys(step.block_table[first:], 0)
            written[step.block_table[first]] = step.start % size
        copied = {target: source for source, target in self.block_copies}
        lost: dict[str, None] = {}
        for seq, step in zip(self.sequences, self.steps, strict=True):
            source = copied.get(step.block_table[step.start // size])
            if source is None or seq.ended:
                continue
            if source in copied or written.get(source, size) < step.start % size:
                lost[seq.tracked.request.request_id] = None
        return list(lost)

    def part(self, request_ids: Collection[str]) -> Batch:
        """The work of some requests in it, as far as they have not ended."""
        part = Batch(self.budget + self.num_tokens, self._block_size)
        chosen = [
            not seq.ended and seq.tracked.request.request_id in request_ids
            for seq in self.sequences
        ]
        part.add_streams(compress(self.sequences[: self._num_streams], chosen))
        for seq, step in compress(self.prompts, chosen[self._num_streams :]):
            part.add(seq, len(step.token_ids))
        held = {block for step in part.steps for block in step.block_table}
        part.block_copies = [copy for copy in self.block_copies if copy[1] in held]
        return part

    def _took(self, count: int) -> None:
        self.budget -= count
        self.num_tokens += count

    def _note_chunk(self, seq: Sequence, count: int) -> None:
        request_id = seq.tracked.request.request_id
        self.chunks.append(Chunk(request_id, seq.num_computed, count))
        self.num_ending += count == seq.num_missing

    def computes_prefix_of(self, seq: Sequence) -> bool:
        """Whether the step computes a block that ``seq`` needs and will find in the cache then."""
        for other, step in self.prompts:
            if other.cache_salt == seq.cache_salt:
                stop = (step.start // self._block_size + 1) * self._block_size
                done = step.start + len(step.token_ids) >= stop <= seq.max_cached_tokens
                if done and other.token_ids[:stop] == seq.token_ids[:stop]:
                    return True
        return False

    def defer(self, seq: Sequence) -> None:
        """Leave out a sequence that the next step will serve better."""
        self.deferred.append(seq.tracked.request.request_id)

    def plan(self) -> StepPlan:
        """Return the step."""
        notes = PlanNotes(
            tuple(self.chunks),
            self.num_decodes,
            self.held_back,
            tuple(self.deferred),
            tuple(self.preempted),
        )
        return StepPlan(tuple(self.steps), tuple(self.block_copies), notes)
