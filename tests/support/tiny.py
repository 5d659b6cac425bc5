"""Tiny models with random weights, as GGUF files: shapes that no real model combines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from support.gguf_writer import Tensor, gguf_bytes


@dataclass(frozen=True)
class TinyModel:
    """What to build. ``dtype`` is of the matrices; the embedding may differ."""

    architecture: str = "llama"
    hidden: int = 48
    heads: int = 3
    kv_heads: int = 1
    head_dim: int = 16
    mlp: int = 72
    vocab: int = 101
    layers: int = 2
    window: int = 8
    dtype: str = "F32"
    embedding_dtype: str = "F32"
    tied: bool = True
    rope_dim: int | None = None
    rope_scale: float = 1.0
    rope_factors: bool = False

    def metadata(self) -> dict[str, object]:
        values: dict[str, object] = {
            "block_count": self.layers,
            "context_length": 512,
            "embedding_length": self.hidden,
            "feed_forward_length": self.mlp,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 1000.0,
        }
        if self.architecture == "gemma3":
            values["attention.sliding_window"] = self.window
        if self.rope_dim:
            values["rope.dimension_count"] = self.rope_dim
        if self.rope_scale != 1.0:
            values |= {"rope.scaling.type": "linear", "rope.scaling.factor": self.rope_scale}
        prefixed = {f"{self.architecture}.{key}": value for key, value in values.items()}
        return {"general.architecture": self.architecture, **prefixed}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab, self.hidden),
            "output_norm.weight": (self.hidden,),
        }
        if not self.tied:
            shapes["output.weight"] = (self.vocab, self.hidden)
        if self.rope_factors:
            shapes["rope_freqs.weight"] = ((self.rope_dim or self.head_dim) // 2,)
        for i in range(self.layers):
            layer: dict[str, tuple[int, ...]] = {
                "attn_norm": (self.hidden,),
                "attn_q": (q_size, self.hidden),
                "attn_k": (kv_size, self.hidden),
                "attn_v": (kv_size, self.hidden),
                "attn_output": (self.hidden, q_size),
                "ffn_norm": (self.hidden,),
                "ffn_gate": (self.mlp, self.hidden),
                "ffn_up": (self.mlp, self.hidden),
                "ffn_down": (self.hidden, self.mlp),
            }
            if self.architecture == "gemma3":
                layer |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (self.head_dim,))
                layer |= dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (self.hidden,))
            shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        return shapes

    def tensors(self) -> dict[str, Tensor]:
        rng = np.random.default_rng(7)
        tensors = {}
        for name, shape in self.shapes().items():
            if len(shape) == 1:
                values = rng.uniform(0.5, 2.0, shape)
            else:
                values = rng.standard_normal(shape) / shape[1] ** 0.5
            matrix_dtype = self.embedding_dtype if name == "token_embd.weight" else self.dtype
            tensors[name] = _stored(values.astype(np.float32), matrix_dtype)
        return tensors

    def write(
        self,
        folder: Path,
        metadata: Mapping[str, object] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Write the file, with ``metadata`` and ``tensors`` in place of its own where given."""
        path = folder / "tiny.gguf"
        path.write_bytes(gguf_bytes(metadata or self.metadata(), tensors or self.tensors()))
        return path


def _stored(values: np.ndarray, dtype: str) -> Tensor:
    if values.ndim == 1 or dtype == "F32":
        return Tensor.f32(values)
    qtype = gguf.GGMLQuantizationType[dtype]
    return Tensor(values.shape, int(qtype), gguf.quantize(values, qtype).tobytes())
