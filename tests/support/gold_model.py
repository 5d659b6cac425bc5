"""A transformer in plain numpy and float64: slow, obvious, and another hand than the C++ core's."""

from __future__ import annotations

from collections.abc import Sequence

import gguf
import numpy as np
from numpy.typing import NDArray

from foreword.models.spec import Activation, AttentionSpec, ModelSpec, RopeSpec
from foreword.weights.gguf import GGUFFile

Array = NDArray[np.float64]


class GoldModel:
    """Logits of every position of one sequence, with nothing cached and nothing fused."""

    def __init__(self, file: GGUFFile, spec: ModelSpec) -> None:
        self.file, self.spec = file, spec

    def weight(self, name: str) -> Array:
        info = self.file.tensors[name]
        qtype = gguf.GGMLQuantizationType(info.dtype)
        values = gguf.dequantize(np.asarray(self.file.data(name)), qtype)
        return values.reshape(info.shape).astype(np.float64)

    def norm(self, x: Array, name: str | None) -> Array:
        if name is None:
            return x
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.spec.norm_eps)
        return x / scale * self.weight(name)

    def rotated(self, x: Array, rope: RopeSpec, start: int = 0) -> Array:
        """``x`` is [tokens, heads, head_dim]; a pair is a complex number, times e^(i·angle)."""
        frequencies = rope.base ** (-np.arange(0, rope.dim, 2) / rope.dim) / rope.scale
        if rope.factors:
            frequencies = frequencies / self.weight(rope.factors)
        turn = np.exp(1j * np.arange(start, start + len(x))[:, None, None] * frequencies)
        part, rest = x[..., : rope.dim], x[..., rope.dim :]
        if rope.interleaved:
            z = (part[..., 0::2] + 1j * part[..., 1::2]) * turn
            part = np.stack([z.real, z.imag], axis=-1).reshape(part.shape)
        else:
            half = rope.dim // 2
            z = (part[..., :half] + 1j * part[..., half:]) * turn
            part = np.concatenate([z.real, z.imag], axis=-1)
        return np.concatenate([part, rest], axis=-1)

    def attention(self, x: Array, attention: AttentionSpec, last: int) -> Array:
        """Of the ``last`` tokens."""
        spec, count = self.spec, len(x)
        q = (x[-last:] @ self.weight(attention.q).T).reshape(last, spec.num_heads, spec.head_dim)
        k = (x @ self.weight(attention.k).T).reshape(count, spec.num_kv_heads, spec.head_dim)
        v = (x @ self.weight(attention.v).T).reshape(count, spec.num_kv_heads, spec.head_dim)
        q = self.rotated(self.norm(q, attention.q_norm), attention.rope, count - last)
        k = self.rotated(self.norm(k, attention.k_norm), attention.rope)
        group = spec.num_heads // spec.num_kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        distance = np.arange(count - last, count)[:, None] - np.arange(count)[None, :]
        seen = (distance >= 0) & (distance < (attention.window or count))
        scores = np.einsum("qhd,khd->hqk", q, k) * attention.scale
        weights = np.exp(np.where(seen, scores - scores.max(axis=-1, keepdims=True), -np.inf))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(last, -1)
        return mixed @ self.weight(attention.output).T

    def activated(self, x: Array, activation: Activation) -> Array:
        if activation is Activation.SILU:
            return x / (1 + np.exp(-x))
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def logits(self, token_ids: Sequence[int], last: int | None = None) -> Array:
        """Of all tokens, or of the ``last`` ones; the last layer computes no others."""
        spec = self.spec
        x = self.weight(spec.embedding)[list(token_ids)] * spec.embedding_scale
        for layer in spec.layers:
            rows = len(x) if last is None or layer is not spec.layers[-1] else last
            branch = self.attention(self.norm(x, layer.attention_norm), layer.attention, rows)
            x = x[-rows:] + self.norm(branch, layer.post_attention_norm)
            inner = self.norm(x, layer.mlp_norm)
            gate = self.activated(inner @ self.weight(layer.mlp.gate).T, layer.mlp.activation)
            branch = (gate * (inner @ self.weight(layer.mlp.up).T)) @ self.weight(layer.mlp.down).T
            x = x + self.norm(branch, layer.post_mlp_norm)
        return self.norm(x, spec.output_norm) @ self.weight(spec.output).T
