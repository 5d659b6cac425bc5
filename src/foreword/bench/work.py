"""The least that a forward pass has to do: multiply-adds and bytes. What limits follow from."""

from __future__ import annotations

from dataclasses import dataclass

from foreword.bench.limits import Limits
from foreword.models.spec import AttentionSpec, ModelSpec
from foreword.weights.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Work:
    """Of one model file.

    Attributes:
        layer_macs: multiply-adds of all layers' matrices, for each token.
        output_macs: of the output matrix, for each token whose logits are wanted.
        weight_bytes: of all those matrices, as the file stores them.
    """

    spec: ModelSpec
    layer_macs: int
    output_macs: int
    weight_bytes: int

    @classmethod
    def of(cls, file: GGUFFile, spec: ModelSpec) -> Work:
        """Count the matrices that ``spec`` names."""
        layers = [
            name
            for layer in spec.layers
            for part in (layer.attention, layer.mlp)
            for name in (
                (part.q, part.k, part.v, part.output)
                if isinstance(part, AttentionSpec)
                else (part.gate, part.up, part.down)
            )
        ]
        sizes = {name: file.tensors[name] for name in (*layers, spec.output)}
        macs = {name: info.shape[0] * info.shape[1] for name, info in sizes.items()}
        return cls(
            spec,
            layer_macs=sum(macs[name] for name in layers),
            output_macs=macs[spec.output],
            weight_bytes=sum(info.nbytes for info in sizes.values()),
        )

    def attention_macs(self, start: int, tokens: int) -> int:
        """Scores and sums of ``tokens`` positions from ``start``: causal work, within windows."""
        per_pair = 2 * self.spec.num_heads * self.spec.head_dim
        pairs = 0
        for layer in self.spec.layers:
            window = layer.attention.window or start + tokens
            pairs += sum(min(position + 1, window) for position in range(start, start + tokens))
        return per_pair * pairs

    def prefill_macs(self, tokens: int) -> int:
        """A whole prompt, with the last token's logits."""
        return tokens * self.layer_macs + self.output_macs + self.attention_macs(0, tokens)

    def prefill_floor_s(self, tokens: int, limits: Limits) -> float | None:
        """Seconds to the first token if every byte were read once at the limit, and every
        multiply-add were an int8 one at the limit; None where that has not been measured.
        """
        return self._floor_s(self.prefill_macs(tokens), limits)

    def decode_floor_s(self, context: int, limits: Limits) -> float | None:
        """Seconds for a token after ``context`` others; the KV cache's bytes are not counted."""
        macs = self.layer_macs + self.output_macs + self.attention_macs(context, 1)
        return self._floor_s(macs, limits)

    def _floor_s(self, macs: int, limits: Limits) -> float | None:
        if not limits.int8:
            return None
        fastest = max(rate.all for rate in limits.int8.values())
        return max(macs / fastest, self.weight_bytes / limits.read.all)
