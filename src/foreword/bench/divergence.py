"""Two models' predictions of one text: perplexity, Kullback-Leibler divergence, agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foreword.errors import BackendError

_CELLS = 2**21  # logits in float64 at a time: 16 MiB, a few times over


@dataclass(frozen=True, slots=True)
class Divergence:
    """Scores of each token, in the text's order, and what sums them up.

    Attributes:
        reference_nll, nll: minus the log-probability that the reference, or the candidate, gave to
            the token that came next; nats.
        kl: KL(reference ‖ candidate) of the distributions of that token; nats.
        same_top: whether both find the same token likeliest.
    """

    reference_nll: NDArray[np.float64]
    nll: NDArray[np.float64]
    kl: NDArray[np.float64]
    same_top: NDArray[np.bool_]

    @classmethod
    def join(cls, parts: Sequence[Divergence]) -> Divergence:
        """Put the parts of a text together."""
        return cls(
            np.concatenate([part.reference_nll for part in parts]),
            np.concatenate([part.nll for part in parts]),
            np.concatenate([part.kl for part in parts]),
            np.concatenate([part.same_top for part in parts]),
        )

    @property
    def tokens(self) -> int:
        """How many tokens were scored."""
        return len(self.kl)

    @property
    def reference_perplexity(self) -> float:
        """Of the text, to the reference."""
        return float(np.exp(self.reference_nll.mean()))

    @property
    def perplexity(self) -> float:
        """Of the text, to the candidate."""
        return float(np.exp(self.nll.mean()))

    @property
    def perplexity_change(self) -> float:
        """The candidate's over the reference's, less one."""
        return float(np.expm1((self.nll - self.reference_nll).mean()))

    @property
    def perplexity_change_error(self) -> float:
        """Standard error of `perplexity_change`: how far another text of this size might be."""
        return float((self.nll - self.reference_nll).std() / self.tokens**0.5)

    @property
    def mean_kl(self) -> float:
        """Nats per token."""
        return float(self.kl.mean())

    @property
    def mean_kl_error(self) -> float:
        """Standard error of `mean_kl`."""
        return float(self.kl.std() / self.tokens**0.5)

    @property
    def same_top_share(self) -> float:
        """Share of tokens where both find the same one likeliest."""
        return float(self.same_top.mean())

    def to_json(self) -> dict[str, Any]:
        """Give the sums as plain data."""
        return {
            "tokens": self.tokens,
            "reference_perplexity": self.reference_perplexity,
            "perplexity": self.perplexity,
            "perplexity_change": self.perplexity_change,
            "perplexity_change_standard_error": self.perplexity_change_error,
            "kl_mean": self.mean_kl,
            "kl_standard_error": self.mean_kl_error,
            "kl_p99": float(np.quantile(self.kl, 0.99)),
            "kl_max": float(self.kl.max()),
            "same_top_share": self.same_top_share,
        }


def compare(
    reference: NDArray[np.float32], candidate: NDArray[np.float32], targets: NDArray[np.int64]
) -> Divergence:
    """Compare logits (``[tokens, vocabulary]``) where ``targets`` are the tokens that came next.

    In float64, a few rows at a time.

    Raises:
        BackendError: a logit is not finite.
    """
    rows = max(1, _CELLS // reference.shape[1])
    return Divergence.join(
        [
            _compare(reference[i : i + rows], candidate[i : i + rows], targets[i : i + rows])
            for i in range(0, len(targets), rows)
        ]
    )


def _compare(
    reference: NDArray[np.float32], candidate: NDArray[np.float32], targets: NDArray[np.int64]
) -> Divergence:
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        raise BackendError("a logit is not finite")
    p, q = _log_softmax(reference), _log_softmax(candidate)
    at = np.arange(len(targets)), targets
    return Divergence(
        reference_nll=-p[at],
        nll=-q[at],
        kl=(np.exp(p) * (p - q)).sum(axis=1),
        same_top=reference.argmax(axis=1) == candidate.argmax(axis=1),
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
