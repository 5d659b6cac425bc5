"""What decoder-only architectures share: GGUF's tensor names and the common hyperparameters."""

from __future__ import annotations

from collections.abc import Callable

from foreword.models.hparams import Hparams
from foreword.models.spec import (
    Activation,
    AttentionSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    RopeSpec,
)


def decoder_layer(
    i: int,
    *,
    activation: Activation,
    scale: float,
    rope: RopeSpec,
    window: int | None = None,
    qk_norms: bool = False,
    post_norms: bool = False,
) -> LayerSpec:
    """Layer ``i`` by GGUF's names for its tensors.

    Args:
        scale, rope, window: see `AttentionSpec`.
        qk_norms: whether each head's queries and keys are normed.
        post_norms: whether each branch's output is normed before it is added.
    """

    def weight(name: str) -> str:
        return f"blk.{i}.{name}.weight"

    return LayerSpec(
        attention=AttentionSpec(
            scale=scale,
            window=window,
            rope=rope,
            q=weight("attn_q"),
            k=weight("attn_k"),
            v=weight("attn_v"),
            output=weight("attn_output"),
            q_norm=weight("attn_q_norm") if qk_norms else None,
            k_norm=weight("attn_k_norm") if qk_norms else None,
        ),
        mlp=MlpSpec(
            activation=activation,
            gate=weight("ffn_gate"),
            up=weight("ffn_up"),
            down=weight("ffn_down"),
        ),
        attention_norm=weight("attn_norm"),
        mlp_norm=weight("ffn_norm"),
        post_attention_norm=weight("post_attention_norm") if post_norms else None,
        post_mlp_norm=weight("post_ffw_norm") if post_norms else None,
    )


def decoder_spec(
    hp: Hparams, layer: Callable[[int], LayerSpec], *, head_dim: int, embedding_scale: float = 1.0
) -> ModelSpec:
    """A model of ``block_count`` layers, each made by ``layer``; tied output where none is stored.

    Raises:
        ModelFileError: a hyperparameter is missing or makes no sense.
    """
    heads = hp.size("attention.head_count")
    return ModelSpec(
        architecture=hp.architecture,
        vocab_size=hp.vocab_size(),
        context_length=hp.size("context_length"),
        hidden_size=hp.size("embedding_length"),
        mlp_size=hp.size("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=hp.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        norm_eps=hp.number("attention.layer_norm_rms_epsilon"),
        embedding_scale=embedding_scale,
        embedding="token_embd.weight",
        output_norm="output_norm.weight",
        output=hp.optional_tensor("output.weight") or "token_embd.weight",
        layers=tuple(layer(i) for i in range(hp.size("block_count"))),
    )
