"""The Llama architecture (Llama 1-3, SmolLM2, TinyLlama and their kin)."""

from __future__ import annotations

from foreword.models.hparams import Hparams
from foreword.models.spec import (
    Activation,
    AttentionSpec,
    LayerSpec,
    MlpSpec,
    ModelSpec,
    RopeSpec,
)


def llama_spec(hp: Hparams) -> ModelSpec:
    """`ModelSpec` of a GGUF file whose architecture is ``llama``.

    Raises:
        ModelFileError: a hyperparameter is missing or makes no sense.
        UnsupportedModelError: the model has a feature that foreword cannot run.
    """
    hidden, heads = hp.size("embedding_length"), hp.size("attention.head_count")
    head_dim = hp.size("attention.key_length", max(hidden // heads, 1))
    rope = RopeSpec(
        base=hp.number("rope.freq_base", 10000.0),
        dim=hp.size("rope.dimension_count", head_dim),
        interleaved=True,  # the converter permutes the rows of Q and K to suit
        scale=hp.rope_scale(),
        factors=hp.optional_tensor("rope_freqs.weight"),
    )

    def layer(i: int) -> LayerSpec:
        return LayerSpec(
            attention=AttentionSpec(
                scale=head_dim**-0.5,
                window=None,
                rope=rope,
                q=f"blk.{i}.attn_q.weight",
                k=f"blk.{i}.attn_k.weight",
                v=f"blk.{i}.attn_v.weight",
                output=f"blk.{i}.attn_output.weight",
            ),
            mlp=MlpSpec(
                activation=Activation.SILU,
                gate=f"blk.{i}.ffn_gate.weight",
                up=f"blk.{i}.ffn_up.weight",
                down=f"blk.{i}.ffn_down.weight",
            ),
            attention_norm=f"blk.{i}.attn_norm.weight",
            mlp_norm=f"blk.{i}.ffn_norm.weight",
        )

    return ModelSpec(
        architecture=hp.architecture,
        vocab_size=hp.vocab_size(),
        context_length=hp.size("context_length"),
        hidden_size=hidden,
        mlp_size=hp.size("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=hp.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        norm_eps=hp.number("attention.layer_norm_rms_epsilon"),
        embedding_scale=1.0,
        embedding="token_embd.weight",
        output_norm="output_norm.weight",
        output=hp.optional_tensor("output.weight") or "token_embd.weight",
        layers=tuple(layer(i) for i in range(hp.size("block_count"))),
    )
