"""Finding, driving and comparing other engines, played by scripts of a few lines."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.tiny import TinyModel

from foreword.bench.limits import Limits, Rate
from foreword.bench.peers.base import Peer, PeerError, PeerSample
from foreword.bench.peers.compare import CompareSettings, Comparison, EngineResult, run_comparison
from foreword.bench.peers.find import PeerSetup, find_peers
from foreword.bench.peers.llama_cpp import LlamaBench, LlamaServer
from foreword.bench.peers.worker import WorkerPeer
from foreword.bench.prompts import PromptSource
from foreword.bench.table import peers_table
from foreword.bench.work import Work
from foreword.errors import ConfigError
from foreword.models.load import load_spec
from foreword.weights.gguf import GGUFFile

PYTHON = Path(sys.executable)


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return path


def check_sample(sample: PeerSample, took_s: float) -> None:
    """Six tokens in what it took: the first after 0.05 s, the last at least 0.08 s later."""
    assert sample.tpot_s is not None
    assert sample.ttft_s >= 0.05
    assert 0.13 <= sample.ttft_s + 4 * sample.tpot_s <= took_s


# Engines with a Python of their own

FAKE_OPENVINO_GENAI = """
    import enum, time
    __version__ = "1.2.3"
    class StreamingStatus(enum.Enum):
        RUNNING = 0
    class StreamerBase: ...
    class GenerationConfig: ...
    class TokenizedInputs:
        def __init__(self, ids, mask):
            assert ids.shape == mask.shape and mask.all()
            self.ids = ids
    class LLMPipeline:
        def __init__(self, path, device, INFERENCE_NUM_THREADS):
            print("engines print what they like")
            assert (path, device, INFERENCE_NUM_THREADS) == ("m.gguf", "CPU", 2)
        def generate(self, inputs, config, streamer):
            if inputs.ids.tolist() == [[13]]:
                raise RuntimeError("unlucky")
            assert config.ignore_eos and not config.do_sample
            time.sleep(0.05)
            streamer.write([1, 2])
            for _ in range(config.max_new_tokens - 2):
                time.sleep(0.02)
                streamer.write(3)
            streamer.end()
"""
FAKE_VLLM = """
    import os, time
    from types import SimpleNamespace as Namespace
    __version__ = "0.9"
    assert os.environ["OMP_NUM_THREADS"] == "2"
    SamplingParams = Namespace
    class Engine:
        model_config = Namespace(dtype="torch.bfloat16")
        def add_request(self, name, prompt, params):
            assert prompt == {"prompt_token_ids": [1, 2, 3]} and params.ignore_eos
            self.made, self.wanted = 0, params.max_tokens
        def has_unfinished_requests(self):
            return self.made < self.wanted
        def step(self):
            time.sleep(0.05 if not self.made else 0.02)
            self.made += 1
            return [Namespace(outputs=[Namespace(token_ids=[0] * self.made)])]
    class LLM:
        def __init__(self, model, max_model_len, **_):
            assert (model, max_model_len) == ("m.gguf", 40)
            self.llm_engine = Engine()
"""
CONFIG = {"model": "m.gguf", "num_threads": 2, "max_tokens": 40}


@pytest.fixture
def engines_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of those names, where this Python finds them."""
    openvino = "import numpy\nTensor = numpy.asarray\n"
    (tmp_path / "openvino.py").write_text(openvino)
    (tmp_path / "openvino_genai.py").write_text(textwrap.dedent(FAKE_OPENVINO_GENAI))
    (tmp_path / "vllm.py").write_text(textwrap.dedent(FAKE_VLLM))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "version"), [("openvino", "1.2.3"), ("vllm", "0.9, bfloat16")])
def test_an_engine_is_timed_where_it_runs(engines_here: Path, name: str, version: str) -> None:
    peer = WorkerPeer(name, PYTHON, CONFIG)
    try:
        assert peer.version == version
        for _ in range(2):
            began_s = time.monotonic()
            sample = peer.measure([1, 2, 3], 6)
            check_sample(sample, time.monotonic() - began_s)
    finally:
        peer.close()


def test_a_single_token_says_nothing_of_decoding(engines_here: Path) -> None:
    peer = WorkerPeer("vllm", PYTHON, CONFIG)
    try:
        assert peer.measure([1, 2, 3], 1).tpot_s is None
    finally:
        peer.close()


def test_an_engines_failures_are_told_in_its_own_words(engines_here: Path) -> None:
    peer = WorkerPeer("openvino", PYTHON, CONFIG)
    try:
        with pytest.raises(PeerError, match="openvino: RuntimeError: unlucky"):
            peer.measure([13], 6)
        with pytest.raises(PeerError, match="made 2 tokens of 1"):
            peer.measure([5], 1)
        peer.measure([5], 6)  # it goes on after both
        peer._process.terminate()
        peer._process.wait()
        with pytest.raises(PeerError, match="openvino has died"):
            peer.measure([5], 6)
    finally:
        peer.close()
    with pytest.raises(PeerError, match=r"vllm has died: AssertionError"):
        WorkerPeer("vllm", PYTHON, {**CONFIG, "num_threads": 3})


# llama.cpp's programs

FAKE_LLAMA_BENCH = """
    import json, sys
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    assert options["-t"] == "2" and options["-r"] == "1" and options["-o"] == "json"
    if options["-m"] != "m.gguf":
        sys.exit("error: failed to load model")
    prompt, made, depth = (int(options.get(name, 0)) for name in ("-p", "-n", "-d"))
    ns = 1_000_000 * (prompt + 10 * made + (100 if depth == 32 and made else 0))
    print(json.dumps([{"build_number": 77, "model_type": "llama Q4_1", "avg_ns": ns}]))
"""


def test_llama_bench_times_the_prompt_and_decoding_behind_it(tmp_path: Path) -> None:
    program = script(tmp_path / "llama-bench", FAKE_LLAMA_BENCH)
    peer = LlamaBench(program, Path("m.gguf"), 2)
    assert peer.version == "b77, llama Q4_1"
    assert peer.measure(range(32), 11) == PeerSample(0.032, pytest.approx(0.010 + 0.100 / 10))
    assert peer.measure(range(32), 1) == PeerSample(0.032, None)
    with pytest.raises(PeerError, match="failed to load model"):
        LlamaBench(program, Path("other.gguf"), 2)
    with pytest.raises(PeerError, match="No such file"):
        LlamaBench(tmp_path / "nothing", Path("m.gguf"), 2)


FAKE_LLAMA_SERVER = """
    import json, sys, time
    from http.server import BaseHTTPRequestHandler, HTTPServer
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    if options["-m"] != "m.gguf":
        sys.exit("error: failed to load model")
    healthy = 2
    class Handler(BaseHTTPRequestHandler):
        def reply(self, status, body):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())
        def do_GET(self):
            global healthy
            healthy -= 1
            if self.path == "/health":
                self.reply(503 if healthy > 0 else 200, {})
            else:
                self.reply(200, {"build_info": "b77"})
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert asked["stream"] and not asked["cache_prompt"] and asked["ignore_eos"]
            self.send_response(200)
            self.end_headers()
            made = min(asked["n_predict"], 6)
            for i in range(made):
                time.sleep(0.02 if i else 0.05)
                event = {"tokens_predicted": i + 1}
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")
    HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
"""


def test_llama_server_is_asked_over_http(tmp_path: Path) -> None:
    program = script(tmp_path / "llama-server", FAKE_LLAMA_SERVER)
    peer = LlamaServer(program, Path("m.gguf"), 2, 40)
    try:
        assert peer.version == "b77"
        began_s = time.monotonic()
        sample = peer.measure([1, 2], 6)
        check_sample(sample, time.monotonic() - began_s)
        with pytest.raises(PeerError, match="did not make 9 tokens"):
            peer.measure([1, 2], 9)
    finally:
        peer.close()
    with pytest.raises(PeerError, match="failed to load model"):
        LlamaServer(program, Path("other.gguf"), 2, 40)


# Finding

SETUP = PeerSetup(Path("m.gguf"), {}, 2, 40)


def test_engines_are_looked_for_and_none_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, absent = find_peers(SETUP, {"vllm": tmp_path / "no-python"})
    assert not found
    assert set(absent) == {"openvino", "vllm", "llama-bench", "llama-server"}
    assert "no module openvino_genai" in absent["openvino"]


def test_engines_are_found_on_the_path_in_this_python_and_where_one_says(
    engines_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(engines_here / "llama-bench", FAKE_LLAMA_BENCH)
    elsewhere = script(engines_here / "my-server", FAKE_LLAMA_SERVER)
    monkeypatch.setenv("PATH", str(engines_here), prepend=os.pathsep)
    found, absent = find_peers(SETUP, {"llama-server": elsewhere})
    assert (set(found), absent) == ({"openvino", "vllm", "llama-bench", "llama-server"}, {})
    for name, start in found.items():
        peer = start()
        assert peer.name == name
        peer.close()
    with pytest.raises(ConfigError, match="'ollama' is not one of openvino, vllm"):
        find_peers(SETUP, {"ollama": elsewhere})


def test_an_engine_may_load_the_weights_in_its_own_format(engines_here: Path) -> None:
    server = script(engines_here / "llama-server", FAKE_LLAMA_SERVER)
    setup = PeerSetup(Path("other.gguf"), {"llama-server": Path("m.gguf")}, 2, 40)
    found, _ = find_peers(setup, {"llama-server": server})
    found["llama-server"]().close()  # the fake one does not start with other.gguf
    with pytest.raises(ConfigError, match="'ollama' is not one of openvino, vllm"):
        find_peers(PeerSetup(Path("m.gguf"), {"ollama": Path()}, 2, 40), {})


# Comparing


class FakePeer:
    version = "v"

    def __init__(self, name: str, pace_s: float, log: list[Any], fail_at: int = 10**9) -> None:
        self.name = name
        self.pace_s = pace_s
        self.log = log
        self.left = fail_at
        self.closed = False

    def measure(self, prompt_token_ids: Sequence[int], output_tokens: int) -> PeerSample:
        self.log.append((self.name, list(prompt_token_ids), output_tokens))
        self.left -= 1
        if self.left < 0:
            raise PeerError("worn out")
        return PeerSample(self.pace_s * len(prompt_token_ids), self.pace_s)

    def close(self) -> None:
        self.closed = True


def compared(*peers: FakePeer, **settings: Any) -> tuple[EngineResult, ...]:
    def start(peer: FakePeer) -> Peer:
        if peer.pace_s <= 0:
            raise PeerError("does not start")
        return peer

    return run_comparison(
        {peer.name: (lambda peer=peer: start(peer)) for peer in peers},  # type: ignore[misc]
        PromptSource(range(1000)),
        CompareSettings(**settings),
    )


def test_prompts_are_shared_cold_and_go_round_the_engines() -> None:
    log: list[Any] = []
    peers = [FakePeer("foreword", 1, log), FakePeer("b", 2, log), FakePeer("c", 3, log)]
    results = compared(*peers, prompt_lengths=(5, 7), output_tokens=4, repeats=2, warmup=1)
    assert len(log) == 3 * 2 * 3
    by_prompt = [log[i : i + 3] for i in range(0, len(log), 3)]
    for rows in by_prompt:
        assert {name for name, _, _ in rows} == {"foreword", "b", "c"}
        assert len({(tuple(prompt), count) for _, prompt, count in rows}) == 1
    assert len({rows[0][1][0] for rows in by_prompt}) == len(by_prompt)  # no beginning twice
    assert {rows[0][0] for rows in by_prompt} == {"foreword", "b", "c"}  # each goes first
    assert [result.name for result in results] == ["foreword", "b", "c"]
    assert [len(results[1].samples[length]) for length in (5, 7)] == [2, 2]
    assert all(peer.closed for peer in peers)


def test_an_engine_that_fails_is_left_out_and_ours_must_not() -> None:
    log: list[Any] = []
    peers = [FakePeer("foreword", 1, log), FakePeer("b", 2, log, 2), FakePeer("c", 0, log)]
    ours, b, c = compared(*peers, prompt_lengths=(5,), repeats=3, warmup=1)
    assert (len(ours.samples[5]), ours.error) == (3, None)
    assert (len(b.samples[5]), b.error) == (1, "worn out")
    assert (c.samples, c.error) == ({}, "does not start")
    with pytest.raises(PeerError, match="worn out"):
        compared(FakePeer("foreword", 1, log, 1), FakePeer("b", 2, log))


@pytest.mark.parametrize(
    ("option", "value"),
    [("prompt_lengths", ()), ("prompt_lengths", (0,)), ("output_tokens", 0), ("repeats", 0)],
)
def test_settings_that_cannot_be_measured_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        CompareSettings(**{option: value})
    assert caught.value.option == option


# The floor, and the report

LIMITS = Limits(2, {"x": Rate(1e6, 2e6), "y": Rate(1e5, 2e5)}, {}, Rate(1e6, 1.5e6))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    model = TinyModel("gemma3", layers=6, window=4)
    file = GGUFFile.open(model.write(tmp_path))
    return Work.of(file, load_spec(file))


def test_work_is_counted_from_the_model(work: Work) -> None:
    hidden, mlp, q, kv, vocab = 48, 72, 48, 16, 101
    layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * mlp
    assert work.layer_macs == 6 * layer
    assert work.output_macs == vocab * hidden
    assert work.weight_bytes == 4 * (6 * layer + vocab * hidden)
    local, global_ = 1 + 2 + 3 + 4 + 4 + 4, 1 + 2 + 3 + 4 + 5 + 6  # five local layers, one global
    assert work.attention_macs(0, 6) == 2 * q * (5 * local + global_)
    assert work.attention_macs(9, 1) == 2 * q * (5 * 4 + 10)
    assert work.prefill_macs(6) == 6 * work.layer_macs + work.output_macs + work.attention_macs(
        0, 6
    )


def test_the_floor_is_arithmetic_for_prompts_and_memory_for_decoding(work: Work) -> None:
    assert work.prefill_floor_s(60, LIMITS) == work.prefill_macs(60) / 2e6
    assert work.decode_floor_s(60, LIMITS) == work.weight_bytes / 1.5e6
    assert work.decode_floor_s(60, Limits(1, {}, {}, Rate(1, 1))) is None


def test_the_report_has_ratios_and_shares_of_the_limit(work: Work) -> None:
    log: list[Any] = []
    peers = [FakePeer("foreword", 2, log), FakePeer("b", 8, log), FakePeer("c", 0, log)]
    comparison = Comparison(
        created_at="now",
        model="tiny",
        machine={"cpu": "a cpu", "load_1m": 0.1},
        limits=LIMITS,
        settings=CompareSettings(prompt_lengths=(60,), repeats=2),
        work=work,
        engines=compared(*peers, prompt_lengths=(60,), repeats=2),
        absent={"vllm": "it is not here"},
    )
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["schema"] == "foreword.bench.peers/1"
    ours, b, c = data["engines"]
    assert ours["cases"][0]["our_ttft_ratio"] == ours["cases"][0]["our_decode_ratio"] == 1.0
    (case,) = b["cases"]
    assert (case["our_ttft_ratio"], case["our_decode_ratio"]) == (0.25, 4.0)
    assert case["prefill_of_limit"] == pytest.approx(work.prefill_macs(60) / 2e6 / 480)
    assert case["decode_of_limit"] == pytest.approx(work.weight_bytes / 1.5e6 / 8)
    assert (c["cases"], c["error"]) == ([], "does not start")
    console = Console(width=100)
    with console.capture() as captured:
        console.print(peers_table(comparison))
    shown = captured.get()
    assert "480,000.0 │ 0.25 ×" in shown
    assert "no vllm: it is not here" in shown
    assert "c: does not start" in shown
