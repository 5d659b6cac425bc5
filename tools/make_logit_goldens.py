"""Make tests/data/logits: logits of real models, computed by `transformers` in float32.

    python tools/make_logit_goldens.py smollm2:135m=PATH.gguf gemma3:270m=PATH.gguf [--check]

Needs torch, transformers and gguf. The weights are dequantised by `gguf` and put into models that
are configured by hand; a short greedy continuation is printed, to be read: it must make sense.
Token ids come from a longest match over the vocabulary; the tests use the ids only.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

TARGET = Path(__file__).parent.parent / "tests" / "data" / "logits"
LENGTHS = {"smollm2:135m": (1, 15, 16, 17, 300), "gemma3:270m": (1, 15, 16, 17, 300, 700)}
TOP, PROBED_IDS = 20, 64
TOPIC = "objects"  # of Python's own documentation


def hyperparameter(reader: GGUFReader, name: str) -> Any:
    return reader.fields[name].contents()


def unpermuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Undo the converter's reordering of Q and K: (pair, half) back to (half, pair)."""
    per_head = rows.reshape(heads, -1, 2, rows.shape[-1])
    return per_head.swapaxes(1, 2).reshape(rows.shape)


def llama(reader: GGUFReader, weights: dict[str, np.ndarray]) -> LlamaForCausalLM:
    def get(name: str) -> Any:
        return hyperparameter(reader, f"llama.{name}")

    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=len(weights["token_embd.weight"]),
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=get("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")},
        tie_word_embeddings=True,
    )
    for name in list(weights):
        if name.endswith("attn_q.weight"):
            weights[name] = unpermuted(weights[name], heads)
        if name.endswith("attn_k.weight"):
            weights[name] = unpermuted(weights[name], kv_heads)
    return LlamaForCausalLM(config)


def gemma3(reader: GGUFReader, weights: dict[str, np.ndarray]) -> Gemma3ForCausalLM:
    def get(name: str) -> Any:
        return hyperparameter(reader, f"gemma3.{name}")

    config = Gemma3TextConfig(
        vocab_size=len(weights["token_embd.weight"]),
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"),
        head_dim=get("attention.key_length"),
        query_pre_attn_scalar=get("attention.key_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=get("context_length"),
        sliding_window=get("attention.sliding_window"),
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": get("rope.freq_base")},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
        tie_word_embeddings=True,
    )
    for name in weights:  # the file has 1 + w, the model adds the 1 itself
        if name.endswith("norm.weight"):
            weights[name] = weights[name] - 1.0
    return Gemma3ForCausalLM(config)


MODEL_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def their_name(name: str, architecture: str) -> str:
    parts = name.split(".")
    if parts[0] != "blk":
        return f"model.{MODEL_NAMES[parts[0]]}.weight"
    llama_mlp_norm, gemma_mlp_norm = "post_attention_layernorm", "pre_feedforward_layernorm"
    mlp_norm = llama_mlp_norm if architecture == "llama" else gemma_mlp_norm
    return f"model.layers.{parts[1]}.{ {'ffn_norm': mlp_norm, **LAYER_NAMES}[parts[2]] }.weight"


def load(reader: GGUFReader) -> torch.nn.Module:
    architecture = hyperparameter(reader, "general.architecture")
    weights = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    model = {"llama": llama, "gemma3": gemma3}[architecture](reader, weights)
    state = {their_name(n, architecture): torch.from_numpy(w.copy()) for n, w in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert set(missing) <= {"lm_head.weight"}, missing
    assert not unexpected, unexpected
    model.tie_weights()
    model.set_attn_implementation("eager")
    return model.float().eval()


def token_ids(reader: GGUFReader, count: int) -> list[int]:
    """The first ``count`` tokens of some English prose."""
    from pydoc_data.topics import topics

    vocabulary = {t: i for i, t in enumerate(hyperparameter(reader, "tokenizer.ggml.tokens"))}
    is_bpe = hyperparameter(reader, "tokenizer.ggml.model") == "gpt2"
    text = topics[TOPIC].encode("ascii", "ignore").decode()
    text = text.replace(" ", "Ġ" if is_bpe else "▁").replace("\n", "Ċ" if is_bpe else "\n")
    ids = [] if is_bpe else [hyperparameter(reader, "tokenizer.ggml.bos_token_id")]
    at = 0
    while len(ids) < count:
        length = next(n for n in range(20, 0, -1) if text[at : at + n] in vocabulary)
        ids.append(vocabulary[text[at : at + length]])
        at += length
    return ids[:count]


def show_greedy(reader: GGUFReader, model: torch.nn.Module, ids: list[int]) -> None:
    tokens = hyperparameter(reader, "tokenizer.ggml.tokens")
    known = list(ids)
    for _ in range(16):
        known.append(int(model(torch.tensor([known])).logits[0, -1].argmax()))
    print("…", "".join(tokens[i] for i in known[-40:]))


def golden(model: torch.nn.Module, ids: list[int], probed: list[int]) -> dict[str, Any]:
    logits = model(torch.tensor([ids])).logits[0].double().numpy()
    top = np.argsort(-logits[-1], kind="stable")[: TOP + 1]
    positions = sorted({0, len(ids) // 3, len(ids) // 2, len(ids) - 1})
    return {
        "token_ids": ids,
        "top_ids": top[:TOP].tolist(),
        "top_logits": np.round(logits[-1][top[:TOP]], 5).tolist(),
        "positions": positions,
        "probed_logits": np.round(logits[positions][:, probed], 5).tolist(),
    }


def make(name: str, path: str, target: Path) -> str:
    reader = GGUFReader(path)
    model = load(reader)
    if target.exists():  # Python's documentation changes; the prompts need not
        longest = json.loads(target.read_text())["prompts"][-1]["token_ids"]
    else:
        longest = token_ids(reader, max(LENGTHS[name]))
    probed = np.linspace(0, model.config.vocab_size - 1, PROBED_IDS).astype(int).tolist()
    with torch.inference_mode():
        show_greedy(reader, model, longest[:40])
        prompts = [golden(model, longest[:n], probed) for n in LENGTHS[name]]
    return json.dumps({"model": name, "probed_ids": probed, "prompts": prompts}) + "\n"


def same(old: str, new: str) -> bool:
    """Whether two files agree but for the rounding of another build of torch."""
    a, b = json.loads(old), json.loads(new)
    close = all(
        np.allclose(x[field], y[field], atol=2e-4, rtol=0)
        for x, y in zip(a["prompts"], b["prompts"], strict=True)
        for field in ("token_ids", "top_logits", "positions", "probed_logits")
    )
    return close and a["probed_ids"] == b["probed_ids"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=PATH")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    for model in args.models:
        name, _, path = model.partition("=")
        target = TARGET / f"{name.replace(':', '-')}.json"
        text = make(name, path, target)
        if not args.check:
            target.write_text(text)
        elif not same(target.read_text(), text):
            print(f"{target} differs", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
