"""From a file's metadata and tensors to a `ModelSpec`, and what is refused on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.gguf_writer import Tensor
from support.tiny import TinyModel

from foreword.errors import ModelFileError, UnsupportedModelError
from foreword.models.load import load_spec
from foreword.models.spec import Activation, ModelSpec
from foreword.weights.gguf import GGUFFile

LLAMA = TinyModel(layers=2, heads=6, kv_heads=2, head_dim=32)
GEMMA = TinyModel("gemma3", layers=13, window=64)


def spec_of(path: Path) -> ModelSpec:
    return load_spec(GGUFFile.open(path))


def test_llama(tmp_path: Path) -> None:
    spec = spec_of(LLAMA.write(tmp_path))
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (6, 2, 32)
    assert spec.embedding_scale == 1.0
    assert spec.output == spec.embedding == "token_embd.weight"
    for layer in spec.layers:
        assert layer.attention.window is None
        assert layer.attention.rope.interleaved
        assert layer.attention.scale == 32**-0.5
        assert layer.mlp.activation is Activation.SILU
        assert layer.post_attention_norm is layer.attention.q_norm is None


def test_gemma3(tmp_path: Path) -> None:
    spec = spec_of(GEMMA.write(tmp_path))
    assert spec.embedding_scale == 48**0.5
    everywhere = [i for i, layer in enumerate(spec.layers) if layer.attention.window is None]
    assert everywhere == [5, 11]
    assert {spec.layers[i].attention.window for i in range(5)} == {64}
    assert spec.layers[0].attention.rope.base == 10000.0
    assert spec.layers[5].attention.rope.base == 1000.0
    assert not spec.layers[5].attention.rope.interleaved
    assert spec.layers[0].mlp.activation is Activation.GELU_TANH


def test_optional_tensors(tmp_path: Path) -> None:
    spec = spec_of(TinyModel(tied=False, rope_factors=True, rope_scale=2.0).write(tmp_path))
    assert spec.output == "output.weight"
    assert spec.layers[0].attention.rope.factors == "rope_freqs.weight"
    assert spec.layers[0].attention.rope.scale == 2.0


def test_head_width_follows_from_the_hidden_size_where_it_is_not_given(tmp_path: Path) -> None:
    metadata = LLAMA.metadata()
    del metadata["llama.attention.key_length"]
    spec = spec_of(
        TinyModel(heads=3, hidden=48, head_dim=16).write(
            tmp_path,
            metadata
            | {
                "llama.attention.head_count": 3,
                "llama.attention.head_count_kv": 1,
            },
        )
    )
    assert spec.head_dim == 16


@pytest.mark.parametrize("architecture", ["mamba", "", 7, None])
def test_other_architectures_are_refused_with_those_that_run(
    tmp_path: Path, architecture: object
) -> None:
    metadata = LLAMA.metadata()
    if architecture is None:
        del metadata["general.architecture"]
    else:
        metadata["general.architecture"] = architecture
    with pytest.raises(UnsupportedModelError, match="gemma3, llama"):
        spec_of(LLAMA.write(tmp_path, metadata))


BAD_VALUES = [
    ("attention.head_count", 0),
    ("attention.head_count", "six"),
    ("attention.head_count", [6, 6]),
    ("attention.head_count", True),
    ("attention.head_count_kv", 4),  # 6 heads cannot share 4
    ("attention.head_count_kv", 12),
    ("attention.layer_norm_rms_epsilon", float("nan")),
    ("attention.layer_norm_rms_epsilon", -1.0),
    ("block_count", 0),
    ("block_count", 2**31),
    ("embedding_length", 1.5),
    ("rope.freq_base", 0.0),
    ("rope.freq_base", float("inf")),
    ("rope.dimension_count", 31),
    ("rope.dimension_count", 34),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_values_that_make_no_sense(tmp_path: Path, name: str, value: object) -> None:
    metadata = LLAMA.metadata() | {f"llama.{name}": value}
    with pytest.raises(ModelFileError) as caught:
        spec_of(LLAMA.write(tmp_path, metadata))
    assert caught.value.field == f"llama.{name}"


@pytest.mark.parametrize(
    "name",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_missing_values(tmp_path: Path, name: str) -> None:
    metadata = LLAMA.metadata()
    del metadata[f"llama.{name}"]
    with pytest.raises(ModelFileError, match="is missing") as caught:
        spec_of(LLAMA.write(tmp_path, metadata))
    assert caught.value.field == f"llama.{name}"


def test_gemma_without_its_window(tmp_path: Path) -> None:
    metadata = GEMMA.metadata()
    del metadata["gemma3.attention.sliding_window"]
    with pytest.raises(ModelFileError, match="sliding_window"):
        spec_of(GEMMA.write(tmp_path, metadata))


def test_unknown_rope_scaling(tmp_path: Path) -> None:
    metadata = LLAMA.metadata() | {"llama.rope.scaling.type": "yarn"}
    with pytest.raises(UnsupportedModelError, match="yarn"):
        spec_of(LLAMA.write(tmp_path, metadata))


@pytest.mark.parametrize("name", LLAMA.shapes())
def test_every_tensor_is_needed_in_its_shape(tmp_path: Path, name: str) -> None:
    tensors = LLAMA.tensors()
    shape = tensors[name].shape
    del tensors[name]
    with pytest.raises(ModelFileError, match="is missing") as caught:
        spec_of(LLAMA.write(tmp_path, tensors=tensors))
    assert name in caught.value.field
    if name == "token_embd.weight":
        return  # its rows are the vocabulary, whatever their number
    tensors[name] = Tensor.f32(np.zeros((shape[0] + 1, *shape[1:]), np.float32))
    with pytest.raises(ModelFileError, match="has shape") as caught:
        spec_of(LLAMA.write(tmp_path, tensors=tensors))
    assert name in caught.value.field


def test_a_tensor_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    bias = Tensor.f32(np.zeros(192, np.float32))
    with pytest.raises(UnsupportedModelError, match=r"attn_q\.bias"):
        spec_of(LLAMA.write(tmp_path, tensors=LLAMA.tensors() | {"blk.0.attn_q.bias": bias}))


def test_the_real_models(smollm2_path: Path, gemma_path: Path) -> None:
    smollm2, gemma = spec_of(smollm2_path), spec_of(gemma_path)
    assert (len(smollm2.layers), smollm2.head_dim, smollm2.context_length) == (30, 64, 8192)
    assert (len(gemma.layers), gemma.head_dim, gemma.vocab_size) == (18, 256, 262144)
    assert sum(layer.attention.window is None for layer in gemma.layers) == 3
