"""Write a GGUF file with a real model's shape and random weights, to see how speed scales.

    python tools/make_random_model.py qwen2.5-0.5b --tokenizer smollm2.gguf --out qwen-shaped.gguf

Needs gguf. The same arguments give the same bytes. The architecture is ``llama`` whatever the
shape: Qwen's biases, too small to be measured, are left out. Matrices are Q4_1 and the tied
embedding is Q8_0. Tokens come from another file's tokenizer, padded with unused ones to the shape's
vocabulary, so that every engine can load the file. What such a model says means nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType
from numpy.typing import NDArray

GROUP = 32  # weights that share a scale, in both stored types
SEED = 20


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    rope_base: float
    context: int = 32768

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Name in a layer, and shape, of each of its matrices."""
        q_size, kv_size = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "attn_q": (q_size, self.hidden),
            "attn_k": (kv_size, self.hidden),
            "attn_v": (kv_size, self.hidden),
            "attn_output": (self.hidden, q_size),
            "ffn_gate": (self.mlp, self.hidden),
            "ffn_up": (self.mlp, self.hidden),
            "ffn_down": (self.hidden, self.mlp),
        }


SHAPES = {
    "qwen2.5-0.5b": Shape(24, 896, 14, 2, 64, 4864, 151936, 1e6),
    "llama-3.2-1b": Shape(16, 2048, 32, 8, 64, 8192, 128256, 5e5),
}


def q4_1(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    """Codes 0 … 15 around their middle, scaled so that outputs are about as large as inputs."""
    blocks = rng.integers(0, 256, (rows, cols // GROUP, 20), np.uint8)
    scales = rng.uniform(0.8, 1.2, blocks.shape[:2]) / (np.std(np.arange(16)) * cols**0.5)
    put_halves(blocks, 0, scales)
    put_halves(blocks, 2, -7.5 * scales)
    return blocks.reshape(rows, -1)


def q8_0(rng: np.random.Generator, rows: int, cols: int) -> NDArray[np.uint8]:
    """Codes -128 … 127, scaled likewise."""
    blocks = rng.integers(0, 256, (rows, cols // GROUP, 34), np.uint8)
    scales = rng.uniform(0.8, 1.2, blocks.shape[:2]) / (np.std(np.arange(256)) * cols**0.5)
    put_halves(blocks, 0, scales)
    return blocks.reshape(rows, -1)


def put_halves(blocks: NDArray[np.uint8], at: int, values: NDArray[np.float64]) -> None:
    blocks[..., at : at + 2] = values.astype("<f2")[..., None].view(np.uint8)


def add_hyperparameters(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.mlp)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)


def add_tokenizer(writer: GGUFWriter, path: Path, vocab: int) -> None:
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    padding = range(vocab - len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(fields["tokenizer.ggml.pre"].contents())
    writer.add_token_list([*tokens, *(f"[UNUSED{i}]" for i in padding)])
    writer.add_token_types([*types, *(TokenType.UNUSED for _ in padding)])
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    writer.add_bos_token_id(fields["tokenizer.ggml.bos_token_id"].contents())
    writer.add_eos_token_id(fields["tokenizer.ggml.eos_token_id"].contents())
    writer.add_add_bos_token(False)


def add_tensors(writer: GGUFWriter, shape: Shape) -> None:
    rng = np.random.default_rng(SEED)
    ones = np.ones(shape.hidden, np.float32)
    embedding = q8_0(rng, shape.vocab, shape.hidden)
    writer.add_tensor("token_embd.weight", embedding, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", ones)
    for i in range(shape.layers):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", ones)
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", ones)
        for name, (rows, cols) in shape.matrices().items():
            data = q4_1(rng, rows, cols)
            writer.add_tensor(f"blk.{i}.{name}.weight", data, raw_dtype=GGMLQuantizationType.Q4_1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a GGUF file with byte BPE")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    writer = GGUFWriter(arguments.out, "llama")
    writer.add_name(f"{arguments.shape}, random weights")
    writer.add_file_type(3)  # mostly Q4_1
    add_hyperparameters(writer, shape)
    add_tokenizer(writer, arguments.tokenizer, shape.vocab)
    add_tensors(writer, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
