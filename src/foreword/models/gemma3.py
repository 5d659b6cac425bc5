"""The text part of Gemma 3: q/k norms, norms after each branch, local layers with a window."""

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

GLOBAL_EVERY = 6  # layers 5, 11, 17, … see everything, the others a window
LOCAL_ROPE_BASE = 10000.0
LAYERS_OF_27B = 62  # the one size that scales scores by hidden/heads, not by the head's width


def gemma3_spec(hp: Hparams) -> ModelSpec:
    """`ModelSpec` of a GGUF file whose architecture is ``gemma3``.

    The file's norm weights have Gemma's ``1 +`` added already.

    Raises:
        ModelFileError: a hyperparameter is missing or makes no sense.
        UnsupportedModelError: the model has a feature that foreword cannot run.
    """
    hidden, heads = hp.size("embedding_length"), hp.size("attention.head_count")
    num_layers, head_dim = hp.size("block_count"), hp.size("attention.key_length", 256)
    window = hp.size("attention.sliding_window")
    everywhere = RopeSpec(
        base=hp.number("rope.freq_base", 1_000_000.0),
        dim=head_dim,
        interleaved=False,
        scale=hp.rope_scale(),
        factors=hp.optional_tensor("rope_freqs.weight"),
    )
    nearby = RopeSpec(
        base=hp.number("rope.freq_base_swa", LOCAL_ROPE_BASE), dim=head_dim, interleaved=False
    )
    score_width = hidden // heads if num_layers == LAYERS_OF_27B else head_dim

    def layer(i: int) -> LayerSpec:
        is_global = (i + 1) % GLOBAL_EVERY == 0
        return LayerSpec(
            attention=AttentionSpec(
                scale=score_width**-0.5,
                window=None if is_global else window,
                rope=everywhere if is_global else nearby,
                q=f"blk.{i}.attn_q.weight",
                k=f"blk.{i}.attn_k.weight",
                v=f"blk.{i}.attn_v.weight",
                output=f"blk.{i}.attn_output.weight",
                q_norm=f"blk.{i}.attn_q_norm.weight",
                k_norm=f"blk.{i}.attn_k_norm.weight",
            ),
            mlp=MlpSpec(
                activation=Activation.GELU_TANH,
                gate=f"blk.{i}.ffn_gate.weight",
                up=f"blk.{i}.ffn_up.weight",
                down=f"blk.{i}.ffn_down.weight",
            ),
            attention_norm=f"blk.{i}.attn_norm.weight",
            mlp_norm=f"blk.{i}.ffn_norm.weight",
            post_attention_norm=f"blk.{i}.post_attention_norm.weight",
            post_mlp_norm=f"blk.{i}.post_ffw_norm.weight",
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
        embedding_scale=hidden**0.5,
        embedding="token_embd.weight",
        output_norm="output_norm.weight",
        output=hp.optional_tensor("output.weight") or "token_embd.weight",
        layers=tuple(layer(i) for i in range(num_layers)),
    )
