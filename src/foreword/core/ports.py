"""The interfaces between layers."""

from __future__ import annotations

from typing import Any, Protocol

from foreword.core.step import StepPlan, StepResult


class Backend(Protocol):
    """Something that runs a model: the C++ core, torch, or a script.

    All calls come from one thread. Blocks are named by their index in the pool.
    """

    @property
    def vocab_size(self) -> int:
        """How many logits a position has."""
        ...

    @property
    def block_bytes(self) -> int:
        """Bytes of KV that one block holds, over all layers."""
        ...

    def allocate(self, num_blocks: int) -> None:
        """Make a pool of ``num_blocks`` blocks. Called once, before the first step."""
        ...

    def execute(self, plan: StepPlan) -> StepResult:
        """Copy blocks, compute every token of the plan, write its KV, and sample.

        A token's numbers do not depend on what else is in the plan or on how a prompt was cut.

        Raises:
            BackendError: the step failed; the pool's contents at the written positions are
                undefined, everything else is untouched.
        """
        ...

    def read_block(self, block: int) -> bytes:
        """Contents of a block, in the backend's own layout (`block_bytes` long)."""
        ...

    def write_block(self, block: int, data: bytes) -> None:
        """Put back what `read_block` gave."""
        ...

    def describe(self) -> dict[str, Any]:
        """What runs and how: backend, instruction set, threads, arithmetic. For people."""
        ...
