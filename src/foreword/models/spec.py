"""A model as data: all that an executor needs to know, and nothing about how it runs.

Weights are named, not held: a name is a key of the model file's tensors. A matrix is stored as
``(outputs, inputs)``, so that a layer computes ``x @ w.T``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Activation(str, Enum):
    """The gate's function in the MLP ``down(act(gate(x)) * up(x))``."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding (Su et al. 2021, "RoFormer").

    Pair ``i`` of a head turns by ``position / (base**(2i/dim) * scale * factors[i])``.

    Attributes:
        base: of the frequencies.
        dim: how many of a head's channels turn; the others pass through.
        interleaved: pairs are channels ``(2i, 2i+1)``; otherwise ``(i, i+dim/2)``.
        scale: linear position scaling; 1 is none.
        factors: name of a tensor of ``dim/2`` divisors (Llama 3's scaling), or None.
    """

    base: float
    dim: int
    interleaved: bool
    scale: float = 1.0
    factors: str | None = None


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Causal attention of one layer: ``softmax(scale * q @ k.T) @ v``.

    Attributes:
        scale: of the scores, before softmax.
        window: a token sees this many tokens, itself included; None: all before it.
        q_norm, k_norm: RMSNorm weights over each head's channels, applied before RoPE.
    """

    scale: float
    window: int | None
    rope: RopeSpec
    q: str
    k: str
    v: str
    output: str
    q_norm: str | None = None
    k_norm: str | None = None


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """A gated MLP: ``down(act(gate(x)) * up(x))``."""

    activation: Activation
    gate: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One block: ``x += post(attention(pre(x)))``, then the same with the MLP.

    The ``post`` norms stand on a branch's output, before it is added; None: no such norm.
    """

    attention: AttentionSpec
    mlp: MlpSpec
    attention_norm: str
    mlp_norm: str
    post_attention_norm: str | None = None
    post_mlp_norm: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer with RMSNorm and rotary positions.

    Attributes:
        context_length: positions that the model was made for.
        mlp_size: width of the MLP's hidden layer.
        norm_eps: added to the mean square in every RMSNorm.
        embedding_scale: factor on a token's embedding; 1 is none.
        embedding: tensor with a row for each token.
        output: tensor that gives the logits; the embedding's name where the two are tied.
    """

    architecture: str
    vocab_size: int
    context_length: int
    hidden_size: int
    mlp_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    embedding_scale: float
    embedding: str
    output_norm: str
    output: str
    layers: tuple[LayerSpec, ...]

    @property
    def context_cost(self) -> float:
        """What each position before a token adds to its work, relative to that of its matrices.

        Layers with a window are left out: what they look at does not grow.
        """
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        matrices = self.hidden_size * (2 * q_size + 2 * kv_size + 3 * self.mlp_size)
        growing = sum(layer.attention.window is None for layer in self.layers) / len(self.layers)
        return growing * 2 * q_size / matrices

    def linear_names(self) -> list[str]:
        """The matrices that activations are multiplied by, each once, in the order of use."""
        names = [
            name
            for layer in self.layers
            for name in (
                layer.attention.q,
                layer.attention.k,
                layer.attention.v,
                layer.attention.output,
                layer.mlp.gate,
                layer.mlp.up,
                layer.mlp.down,
            )
        ]
        return list(dict.fromkeys([*names, self.output]))

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor that the model reads."""
        hidden, mlp = self.hidden_size, self.mlp_size
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str | None, tuple[int, ...]] = {
            self.embedding: (self.vocab_size, hidden),
            self.output: (self.vocab_size, hidden),
            self.output_norm: (hidden,),
        }
        for layer in self.layers:
            attention = layer.attention
            shapes |= {
                layer.attention_norm: (hidden,),
                attention.q: (q_size, hidden),
                attention.k: (kv_size, hidden),
                attention.v: (kv_size, hidden),
                attention.output: (hidden, q_size),
                attention.q_norm: (self.head_dim,),
                attention.k_norm: (self.head_dim,),
                attention.rope.factors: (attention.rope.dim // 2,),
                layer.post_attention_norm: (hidden,),
                layer.mlp_norm: (hidden,),
                layer.mlp.gate: (mlp, hidden),
                layer.mlp.up: (mlp, hidden),
                layer.mlp.down: (hidden, mlp),
                layer.post_mlp_norm: (hidden,),
            }
        return {name: shape for name, shape in shapes.items() if name is not None}
