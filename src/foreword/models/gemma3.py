"""The text part of Gemma 3: q/k norms, norms after each branch, local layers with a window."""

from __future__ import annotations

from foreword.models.decoder import decoder_layer, decoder_spec
from foreword.models.hparams import Hparams
from foreword.models.spec import Activation, LayerSpec, ModelSpec, RopeSpec

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
        return decoder_layer(
            i,
            activation=Activation.GELU_TANH,
            scale=score_width**-0.5,
            rope=everywhere if is_global else nearby,
            window=None if is_global else window,
            qk_norms=True,
            post_norms=True,
        )

    return decoder_spec(hp, layer, head_dim=head_dim, embedding_scale=hidden**0.5)
