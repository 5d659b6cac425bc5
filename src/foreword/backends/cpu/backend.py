"""The CPU backend: runs steps in the C++ core."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from foreword import _core
from foreword.backends.cpu.cores import usable_cores
from foreword.backends.cpu.native import make_executor
from foreword.backends.cpu.panels import load_panels
from foreword.core.params import SamplingParams
from foreword.core.step import SequenceResult, SequenceStep, StepPlan, StepResult, TokenLogprob
from foreword.errors import BackendError, ConfigError
from foreword.models.spec import ModelSpec
from foreword.weights.gguf import GGUFFile

if TYPE_CHECKING:  # numpy takes longer to import than all the rest
    import numpy as np
    from numpy.typing import NDArray

KERNEL_BLOCK_SIZE = 16  # tokens: the lanes of a vector

_UINT64 = 2**64 - 1
_MAX_THREADS = 1024

# Token ids, lengths, starts, block tables, table lengths, block copies.
_FlatPlan: TypeAlias = "tuple[_Ints, _Ints, _Ints, _Ints, _Ints, _Ints]"
_Ints: TypeAlias = "array[int]"

_LogprobEntry: TypeAlias = "tuple[int, float, int, tuple[tuple[int, float], ...]]"


def resolve_isa(isa: str) -> str:
    """The kernels that ``isa`` stands for on this machine.

    Raises:
        ConfigError: it has none of that name.
    """
    available = _core.available_isas()
    if isa == "auto":
        return available[0]
    if isa not in available:
        raise ConfigError("isa", f"{isa!r} is not one of auto, {', '.join(available)}")
    return isa


class CpuBackend:
    """Runs a model on this machine's processor.

    Args:
        file: the model's file; its mapping stays in use for as long as the backend lives.
        block_size: tokens in a block: a multiple of the kernels' own 16. A larger block is a run of
            theirs.
        num_threads: 0: all cores that the process may use.
        isa: kernels to run: ``auto``, or one of ``avx512_vnni``, ``avx512``, ``avx2``,
            ``portable``, ``reference``.
        kv_cache_dtype: what keys and values are kept as: ``float32``, ``float16``, or ``int8``
            (with a scale for each token and head; attention is then integer arithmetic too).
        compute: ``float32``: weights as the file has them, products in floats. ``int8``: linear
            layers multiply integers, packed once (`foreword.backends.cpu.panels`).
        panel_folder: where packed weights are kept; None: in memory.

    Raises:
        ConfigError: this machine cannot run ``isa``, or another option has no meaning.
        ModelFileError: a weight is not finite (where ``compute`` is ``float32``: a norm's).
        BackendError: the system does not give that many threads.
    """

    def __init__(
        self,
        file: GGUFFile,
        spec: ModelSpec,
        *,
        block_size: int = KERNEL_BLOCK_SIZE,
        num_threads: int = 0,
        isa: str = "auto",
        compute: str = "float32",
        panel_folder: Path | None = None,
        kv_cache_dtype: str = "float32",
    ) -> None:
        isa = resolve_isa(isa)
        if compute not in ("float32", "int8"):
            raise ConfigError("compute", f"{compute!r} is not one of float32, int8")
        if not 0 <= num_threads <= _MAX_THREADS:
            raise ConfigError("num_threads", f"must be in [0, {_MAX_THREADS}], not {num_threads}")
        self._spec = spec
        self._kv_cache_dtype = kv_cache_dtype
        self._split = block_size // KERNEL_BLOCK_SIZE  # kernel blocks in a block
        num_threads = num_threads or usable_cores()
        with _as_backend_errors(f"cannot run the model on {num_threads} threads"):
            panels = (
                load_panels(file, spec.linear_names(), panel_folder, num_threads=num_threads)
                if compute == "int8"
                else {}
            )
            self._executor = make_executor(
                file, spec, panels, isa=isa, kv_cache_dtype=kv_cache_dtype, num_threads=num_threads
            )
        self._compute = compute
        self._sampling_specs: dict[int, tuple[SamplingParams, _core.SamplingSpec]] = {}

    @property
    def vocab_size(self) -> int:
        """How many logits a position has."""
        return self._spec.vocab_size

    @property
    def block_bytes(self) -> int:
        """Bytes of KV that one block holds, over all layers."""
        return self._executor.block_bytes * self._split

    @property
    def code_path(self) -> Path:
        """The compiled module: what it says decides each number to the last bit."""
        return Path(_core.__file__)

    def allocate(self, num_blocks: int) -> None:
        """Map memory for ``num_blocks`` blocks, backed by pages only some way ahead of the tokens.

        Raises:
            BackendError: there is no room for them, or this is a second call.
        """
        with _as_backend_errors(f"num_blocks: cannot allocate {num_blocks} KV blocks"):
            self._executor.allocate(num_blocks * self._split)

    def execute(self, plan: StepPlan) -> StepResult:
        """See `foreword.core.ports.Backend.execute`."""
        with _as_backend_errors("the step failed"):
            samplings = self._samplings(plan)
            found, sampling_s = self._executor.execute(*self._flatten(plan), samplings)
        outputs = iter(found)
        return StepResult(
            tuple(
                _result(sequence, *next(outputs))
                if _wants_output(sequence)
                else SequenceResult(sequence.seq_id)
                for sequence in plan.sequences
            ),
            sampling_s,
        )

    def _samplings(self, plan: StepPlan) -> list[_core.Sampling]:
        specs: dict[int, tuple[SamplingParams, _core.SamplingSpec]] = {}
        samplings = []
        for index, sequence in enumerate(plan.sequences):
            if not _wants_output(sequence):
                continue
            if sequence.params is None:
                raise BackendError(f"sequence {sequence.seq_id} has nothing to sample with")
            key = id(sequence.params)  # the entry holds the params, so the id stays theirs
            specs[key] = self._sampling_specs.get(key) or (
                sequence.params,
                _sampling_spec(sequence.params),
            )
            samplings.append(_sampling(index, sequence, specs[key][1]))
        self._sampling_specs = specs
        return samplings

    def logits(self, plan: StepPlan, rows: Sequence[int]) -> NDArray[np.float32]:
        """Run a step for its logits: those of ``rows``, indices into the plan's tokens, ascending.

        Returns:
            ``[len(rows), vocab_size]``. Nothing is sampled.

        Raises:
            BackendError: as for `execute`.
        """
        with _as_backend_errors("the step failed"):
            return self._executor.logits(*self._flatten(plan), _ints(rows))

    def read_block(self, block: int) -> bytes:
        """Keys and values of a block, in the core's own layout (`block_bytes` long).

        Raises:
            BackendError: there is no such block.
        """
        with _as_backend_errors(f"cannot read block {block}"):
            return b"".join(map(self._executor.read_block, self._kernel_blocks([block])))

    def write_block(self, block: int, data: bytes) -> None:
        """Put back what `read_block` gave.

        Raises:
            BackendError: there is no such block, or ``data`` is not `block_bytes` long.
        """
        with _as_backend_errors(f"cannot write block {block}"):
            if len(data) != self.block_bytes:
                raise ValueError(f"{len(data)} bytes are not the {self.block_bytes} of a block")
            size = self._executor.block_bytes
            for part, kernel_block in enumerate(self._kernel_blocks([block])):
                self._executor.write_block(kernel_block, data[part * size : (part + 1) * size])

    def _kernel_blocks(self, blocks: Iterable[int]) -> _Ints:
        """The kernels' own blocks that make up ``blocks``."""
        if self._split == 1:
            return _ints(blocks)
        parts = range(self._split)
        return _ints([block * self._split + part for block in blocks for part in parts])

    def _flatten(self, plan: StepPlan) -> _FlatPlan:
        sequences = plan.sequences
        sources = self._kernel_blocks(source for source, _ in plan.block_copies)
        targets = self._kernel_blocks(target for _, target in plan.block_copies)
        return (
            _ints(chain.from_iterable(s.token_ids for s in sequences)),
            _ints(len(s.token_ids) for s in sequences),
            _ints(s.start for s in sequences),
            self._kernel_blocks(chain.from_iterable(s.block_table for s in sequences)),
            _ints(len(s.block_table) * self._split for s in sequences),
            _ints(chain.from_iterable(zip(sources, targets, strict=True))),
        )

    def describe(self) -> dict[str, Any]:
        """What runs and how. For people."""
        return {
            "backend": "cpu",
            "isa": self._executor.isa,
            "num_threads": self._executor.num_threads,
            "compute": self._compute,
            "kv_cache_dtype": self._kv_cache_dtype,
        }


@contextmanager
def _as_backend_errors(what: str) -> Iterator[None]:
    """Whatever the core objects to; TypeError and OverflowError come of ids beyond 32 bits."""
    try:
        yield
    except (
        ValueError,
        IndexError,
        TypeError,
        OverflowError,
        MemoryError,
        RuntimeError,
    ) as error:
        raise BackendError(f"{what}: {error}") from error


def _wants_output(sequence: SequenceStep) -> bool:
    return bool(sequence.draws or sequence.score_token_ids)


def _ints(values: Iterable[int]) -> _Ints:
    return array("i", values)


def _sampling_spec(params: SamplingParams) -> _core.SamplingSpec:
    return _core.SamplingSpec(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=list(params.logit_bias),  # type: ignore[arg-type]  # normalised to pairs
        logprobs=-1 if params.logprobs is None else params.logprobs,
        prompt_logprobs=-1 if params.prompt_logprobs is None else params.prompt_logprobs,
    )


def _sampling(index: int, sequence: SequenceStep, spec: _core.SamplingSpec) -> _core.Sampling:
    return _core.Sampling(
        sequence=index,
        spec=spec,
        seed=sequence.seed & _UINT64,
        position=sequence.start + len(sequence.token_ids),
        draws=sequence.draws,
        history=sequence.history,
        banned=sequence.banned_token_ids,
        score_ids=sequence.score_token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens,
    )


def _result(
    sequence: SequenceStep,
    token_ids: list[int],
    logprobs: list[_LogprobEntry],
    scores: list[_LogprobEntry],
) -> SequenceResult:
    return SequenceResult(
        sequence.seq_id,
        tuple(token_ids),
        tuple(TokenLogprob(*entry) for entry in logprobs),
        tuple(TokenLogprob(*entry) for entry in scores),
    )
