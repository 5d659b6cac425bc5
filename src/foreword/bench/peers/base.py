"""What every engine under comparison can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foreword.errors import ForewordError


class PeerError(ForewordError):
    """An engine could not be started, died, or answered what makes no sense."""


@dataclass(frozen=True, slots=True)
class PeerSample:
    """One prompt and its greedy continuation.

    Attributes:
        ttft_s: from the prompt's token ids to the first token.
        tpot_s: time per token after the first, with the prompt as context; None: none was made.
    """

    ttft_s: float
    tpot_s: float | None


class Peer(Protocol):
    """An engine with the model loaded. What it measures excludes loading."""

    @property
    def name(self) -> str:
        """As the report calls it."""
        ...

    @property
    def version(self) -> str:
        """The engine's own, and what it says of how it computes."""
        ...

    def measure(self, prompt_token_ids: Sequence[int], output_tokens: int) -> PeerSample:
        """Run one prompt to ``output_tokens`` tokens, with nothing cached.

        Raises:
            PeerError: it failed.
        """
        ...

    def close(self) -> None:
        """End it."""
        ...
