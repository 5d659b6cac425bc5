"""Runs in an engine's own Python: loads a model, then times one prompt for each line of input.

    python worker_main.py ENGINE '{"model": …, "num_threads": …, "max_tokens": …, "options": …}'

Needs nothing but the engine and the standard library. Speaks JSON lines: first
``{"version": …}``; then for each ``{"prompt_token_ids": […], "output_tokens": n}`` the answer
``{"arrivals_s": […]}``, when each token came, or ``{"error": …}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

Generate = Callable[[Sequence[int], int, Callable[[int], None]], None]
"""Takes a prompt, a number of tokens, and whom to tell how many came, each time some did."""


def load_foreword(config: dict[str, Any]) -> tuple[str, Generate]:
    """This project."""
    import foreword
    from foreword import LLM, SamplingParams

    llm = LLM(config["model"], num_threads=config["num_threads"], **config["options"])

    def generate(prompt: Sequence[int], count: int, came: Callable[[int], None]) -> None:
        params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
        for delta in llm.stream(prompt, params):
            came(sum(len(completion.token_ids) for completion in delta.completions))

    about = llm.engine.backend.describe()
    return f"{foreword.__version__}, {about['compute']}, {about['isa']}", generate


def load_openvino(config: dict[str, Any]) -> tuple[str, Generate]:
    """OpenVINO GenAI, from the GGUF file itself."""
    import numpy as np
    import openvino
    import openvino_genai as genai

    pipeline = genai.LLMPipeline(
        config["model"], "CPU", INFERENCE_NUM_THREADS=config["num_threads"]
    )

    def generate(prompt: Sequence[int], count: int, came: Callable[[int], None]) -> None:
        class Streamer(genai.StreamerBase):  # type: ignore[misc]
            def write(self, token: object) -> Any:
                came(len(token) if isinstance(token, list) else 1)
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                pass

        ids = np.array([prompt], np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        generation = genai.GenerationConfig()
        generation.max_new_tokens = count
        generation.ignore_eos = True
        generation.do_sample = False
        pipeline.generate(inputs, generation, Streamer())

    return str(genai.__version__), generate


def load_vllm(config: dict[str, Any]) -> tuple[str, Generate]:
    """vLLM's engine, step by step."""
    os.environ["OMP_NUM_THREADS"] = str(config["num_threads"])
    import vllm

    llm = vllm.LLM(
        config["model"],
        skip_tokenizer_init=True,
        max_model_len=config["max_tokens"],
        enable_prefix_caching=False,
        gpu_memory_utilization=0.4,  # of all memory, on a CPU too; the default asks for nearly all
    )
    engine = llm.llm_engine

    def generate(prompt: Sequence[int], count: int, came: Callable[[int], None]) -> None:
        params = vllm.SamplingParams(
            max_tokens=count, temperature=0.0, ignore_eos=True, detokenize=False
        )
        engine.add_request("0", {"prompt_token_ids": list(prompt)}, params)
        known = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                total = len(output.outputs[0].token_ids)
                came(total - known)
                known = total

    dtype = str(engine.model_config.dtype).removeprefix("torch.")
    return f"{vllm.__version__}, {dtype}", generate


LOADERS = {"foreword": load_foreword, "openvino": load_openvino, "vllm": load_vllm}


def arrivals(generate: Generate, prompt: Sequence[int], count: int) -> list[float]:
    """Seconds from the call to each token."""
    times: list[float] = []
    began_s = time.perf_counter()
    generate(prompt, count, lambda n: times.extend([time.perf_counter() - began_s] * n))
    return times


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines print what they like
    del sys.path[0]  # this file's neighbours are no modules of theirs
    version, generate = LOADERS[sys.argv[1]](json.loads(sys.argv[2]))
    print(json.dumps({"version": version}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            times = arrivals(generate, request["prompt_token_ids"], request["output_tokens"])
            answer: dict[str, Any] = {"arrivals_s": times}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
