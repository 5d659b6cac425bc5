"""From a `ModelSpec` and its file to the C++ core's model. No weight is copied but the norms."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

from foreword import _core
from foreword.errors import ModelFileError
from foreword.models.spec import Activation, LayerSpec, ModelSpec, RopeSpec
from foreword.weights.gguf import GGUFFile

_ACTIVATIONS = {
    Activation.SILU: _core.Activation.SILU,
    Activation.GELU_TANH: _core.Activation.GELU_TANH,
}


def make_executor(
    file: GGUFFile,
    spec: ModelSpec,
    panels: Mapping[str, memoryview],
    *,
    isa: str,
    kv_cache_dtype: str,
    num_threads: int,
) -> _core.Executor:
    """An executor for ``spec`` that reads the weights where they are in ``file``'s mapping.

    ``panels`` are the linear layers' weights, packed, by name: all of them, or none for float32.

    Raises:
        ModelFileError: a norm's weight is not finite.
        ValueError: this machine cannot run ``isa``, or there is no such ``kv_cache_dtype``.
    """
    ropes = list(dict.fromkeys(layer.attention.rope for layer in spec.layers))
    matrices: dict[str, _core.Matrix] = {}

    def matrix(name: str) -> _core.Matrix:
        if name not in matrices:
            info = file.tensors[name]
            rows, cols = info.shape
            matrices[name] = _core.Matrix(file.data(name), info.dtype, rows, cols, panels.get(name))
        return matrices[name]

    def vector(name: str | None) -> memoryview:
        if name is None:
            return memoryview(array("f"))
        info = file.tensors[name]
        values = _core.dequantize(info.dtype, file.data(name), info.shape[0])
        if not math.isfinite(sum(values)):
            raise ModelFileError(file.path, f"tensor {name!r}", "a weight is not finite")
        return values

    def native_rope(rope: RopeSpec) -> _core.Rope:
        return _core.Rope(
            base=rope.base,
            dim=rope.dim,
            scale=rope.scale,
            factors=vector(rope.factors),
            interleaved=rope.interleaved,
        )

    def native_layer(layer: LayerSpec) -> _core.Layer:
        attention, mlp = layer.attention, layer.mlp
        return _core.Layer(
            q=matrix(attention.q),
            k=matrix(attention.k),
            v=matrix(attention.v),
            output=matrix(attention.output),
            gate=matrix(mlp.gate),
            up=matrix(mlp.up),
            down=matrix(mlp.down),
            attention_norm=vector(layer.attention_norm),
            mlp_norm=vector(layer.mlp_norm),
            q_norm=vector(attention.q_norm),
            k_norm=vector(attention.k_norm),
            post_attention_norm=vector(layer.post_attention_norm),
            post_mlp_norm=vector(layer.post_mlp_norm),
            attention_scale=attention.scale,
            window=attention.window or 0,
            rope=ropes.index(attention.rope),
            activation=_ACTIVATIONS[mlp.activation],
        )

    return _core.Executor(
        isa=isa,
        kv_cache_dtype=kv_cache_dtype,
        num_threads=num_threads,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        norm_eps=spec.norm_eps,
        embedding_scale=spec.embedding_scale,
        embedding=matrix(spec.embedding),
        output=matrix(spec.output),
        output_norm=vector(spec.output_norm),
        ropes=[native_rope(rope) for rope in ropes],
        layers=[native_layer(layer) for layer in spec.layers],
        owner=matrices,
    )
