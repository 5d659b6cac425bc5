"""The Llama architecture (Llama 1-3, SmolLM2, TinyLlama and their kin)."""

from __future__ import annotations

from foreword.models.decoder import decoder_layer, decoder_spec
from foreword.models.hparams import Hparams
from foreword.models.spec import Activation, LayerSpec, ModelSpec, RopeSpec


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
        return decoder_layer(i, activation=Activation.SILU, scale=head_dim**-0.5, rope=rope)

    return decoder_spec(hp, layer, head_dim=head_dim)
