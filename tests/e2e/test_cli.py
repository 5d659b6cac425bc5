"""The command line, as its user types it."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import openai
import pytest
from support.waiting import HANG_S

FOREWORD = str(Path(sys.executable).with_name("foreword"))


def foreword(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FOREWORD, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "COLUMNS": "200", **env},
        check=False,
    )


def test_run_streams_an_answer_and_ends_with_its_ttft(smollm2_path: Path) -> None:
    done = foreword(
        "run", "Name the capital of France.", "-m", str(smollm2_path), "--max-tokens", "20"
    )
    assert done.returncode == 0, done.stderr
    *answer, last = done.stdout.splitlines()
    assert "Paris" in " ".join(answer)
    assert re.fullmatch(r"TTFT \d+\.\d ms · \d+ tokens · \d+\.\d tok/s · ready in \d+ ms", last), (
        last
    )


def test_run_reads_standard_input(smollm2_path: Path) -> None:
    done = foreword(
        "run", "-", "--raw", "-q", "-m", str(smollm2_path), "--max-tokens", "4", stdin="1, 2, 3, 4,"
    )
    assert done.stdout.startswith(" 5"), (done.stdout, done.stderr)


def test_text_that_the_terminal_cannot_show_or_that_is_no_utf8_does_no_harm(
    smollm2_path: Path,
) -> None:
    done = subprocess.run(
        [FOREWORD, "run", "-", "--raw", "-m", str(smollm2_path), "--max-tokens", "4"],
        input=b"\xff\xfe caf\xc3\xa9, na\xc3\xafve, caf\xc3\xa9, na",
        capture_output=True,
        timeout=150,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].isascii()
    assert b"TTFT" in done.stdout


def test_a_reader_that_leaves_ends_it_quietly(smollm2_path: Path) -> None:
    done = subprocess.run(
        f"{FOREWORD} run 'Count to 1000.' -m {smollm2_path} --max-tokens 60 | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert len(done.stdout) == 1
    assert done.stderr == ""


def test_chat_remembers_and_resets(smollm2_path: Path) -> None:
    done = foreword(
        "chat",
        "-m",
        str(smollm2_path),
        "--max-tokens",
        "8",
        stdin="My name is Ada.\nHello\n/reset\n/exit\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("TTFT") == 2


def test_ctrl_c_stops_the_answer_and_not_the_program(smollm2_path: Path) -> None:
    chat = subprocess.Popen(
        [FOREWORD, "chat", "-m", str(smollm2_path), "--max-tokens", "500"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write("Tell me a long story.\n")
    chat.stdin.flush()
    chat.stdout.readline()  # the greeting
    begun = chat.stdout.read(10)  # the answer has begun
    chat.send_signal(signal.SIGINT)
    out, _ = chat.communicate("Hello\n/exit\n", timeout=150)
    assert "[stopped]" in out, begun + out
    assert out.count("TTFT") == 2, begun + out  # the stopped answer's, and the next one's
    assert chat.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "hi", "-m", "no-such-model"), "no-such-model"),
        (("run", "hi", "-m", "/no/such/file.gguf"), "/no/such/file.gguf"),
        (("run", "hi", "-m", __file__), "magic"),
        (("run", "hi", "--max-num-seqs", "0"), "max_num_seqs"),
        (("run", "hi", "--temperature", "nan"), "temperature"),
        (("run", "hi", "--isa", "riscv"), "isa"),
        (("run", "word " * 9000), "context"),
        (("serve", "--max-model-len", "99999999"), "max_model_len"),
    ],
)
def test_mistakes_are_told_in_one_line(
    smollm2_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = foreword(*arguments)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_models_lists_what_can_be_had_and_whole_paths(smollm2_path: Path) -> None:
    shown = foreword("models", COLUMNS="60").stdout
    assert "smollm2:135m" in shown
    assert "gemma3:270m" in shown
    assert str(smollm2_path) in "".join(shown.split())


def test_serve_tells_its_settings_answers_and_ends_with_zero(smollm2_path: Path) -> None:
    options = ("--port", "0", "--served-model-name", "mine", "--max-num-seqs", "3")
    server = subprocess.Popen(
        [FOREWORD, "serve", str(smollm2_path), *options], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    told = []
    while not (line := server.stderr.readline()).startswith("listening on "):
        assert line, "".join(told)
        told.append(line)
    assert ["max_num_seqs", "3", "as", "given"] in [line.split() for line in told]
    with openai.OpenAI(base_url=line.split()[-1] + "/v1", api_key="none") as client:
        answer = client.completions.create(
            model="mine", prompt="1, 2, 3, 4,", max_tokens=2, temperature=0
        )
    assert answer.choices[0].text == " 5"
    server.send_signal(signal.SIGTERM)
    assert server.wait(HANG_S) == 0
    assert "leaked" not in server.stderr.read()
    server.stderr.close()


def test_a_port_that_is_taken_is_told_in_one_line(smollm2_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = foreword("serve", str(smollm2_path), "--port", port)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"error: port: cannot listen on 127.0.0.1, port {port}"
    )


def test_help_lists_every_option_with_its_default() -> None:
    shown = foreword("serve", "--help").stdout
    for option in (
        "--host",
        "--port",
        "--block-size",
        "--max-num-batched-tokens",
        "--max-num-seqs",
        "--max-model-len",
        "--no-enable-prefix-caching",
        "--api-key",
    ):
        assert option in shown, shown


def test_import_is_quick() -> None:
    code = "import time; t = time.process_time(); import foreword; print(time.process_time() - t)"
    times = [
        float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)
    ]
    assert min(times) < 0.12  # 0.012 here


def test_start_to_first_token_is_quick(smollm2_path: Path) -> None:
    """In processor time, which a busy machine hardly stretches; both cores' together."""

    def used_s() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    foreword("run", "--max-tokens", "1", "Hello", "-m", str(smollm2_path))  # fills the caches
    times = []
    for _ in range(3):
        before_s = used_s()
        foreword("run", "--max-tokens", "1", "Hello", "-m", str(smollm2_path))
        times.append(used_s() - before_s)
    assert 0 < min(times) < 3.0  # 0.3 s here; a machine may be slow, too
