from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from foreword.bench.load.corpus import Corpus
from foreword.bench.load.plan import Workload
from foreword.bench.load.trace import Trace
from foreword.bench.load.workloads import plan
from foreword.errors import ConfigError

CORPUS = Corpus.of_words(1.0)


def row(at_ms: float, prompt: int, output: int, ids: list[int]) -> str:
    fields = {"timestamp": at_ms, "input_length": prompt, "output_length": output, "hash_ids": ids}
    return json.dumps(fields)


def replay(path: Path, count: int = 100, **settings: Any) -> Workload:
    return plan(Trace(path=str(path), **settings), CORPUS, count=count)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl.gz"
    lines = [row(5000, 1100, 40, [7, 8, 9]), row(3000, 600, 1, [7, 8]), row(9000, 512, 3, [4])]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_times_lengths_and_shared_prefixes_are_the_traces(small: Path) -> None:
    first, second, third = replay(small, length_scale=1 / 16, time_scale=2.0).requests
    assert [first.intended_s, second.intended_s, third.intended_s] == [0.0, 4.0, 12.0]
    assert [first.prompt_tokens, second.prompt_tokens] == [38, 69]  # 600 / 16, 1100 / 16
    assert [first.max_tokens, second.max_tokens, third.max_tokens] == [1, 2, 1]
    words = [request.plain_prompt().text.split() for request in (first, second, third)]
    assert [len(each) for each in words] == [38, 69, 32]
    assert words[0] == words[1][:38]  # blocks 7 and 8, as far as the first goes
    assert words[2][:8] != words[1][:8]


def test_long_prompts_can_be_cut(small: Path) -> None:
    requests = replay(small, max_prompt_tokens=550).requests
    assert [request.prompt_tokens for request in requests] == [550, 550, 512]
    assert requests[0].plain_prompt() == requests[1].plain_prompt()


def test_requests_of_one_tick_can_be_spread_over_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    times_ms = [0, 0, 0, 3000, 6000, 6000]
    path.write_text("\n".join(row(at_ms, 10, 1, [1]) for at_ms in times_ms))

    def times_s(**settings: Any) -> list[float | None]:
        return [request.intended_s for request in replay(path, **settings).requests]

    assert times_s() == [0.0, 0.0, 0.0, 3.0, 6.0, 6.0]
    assert times_s(arrivals="spread", time_scale=2.0) == [0.0, 2.0, 4.0, 6.0, 12.0, 12.0]
    with pytest.raises(ConfigError, match="arrivals"):
        replay(path, arrivals="even")


def test_what_is_no_request_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    bad = [
        "{",
        "not json",
        "[1]",
        '{"timestamp": 1}',
        row(-5, 10, 1, [1]),
        row(float("nan"), 10, 1, [1]),
        row(1, 0, 1, [1]),
        row(1, 10, -3, [1]),
        row(1, 600, 1, [1]),
        '{"timestamp": 1, "input_length": "x", "output_length": 1, "hash_ids": [1]}',
    ]
    path.write_text("\n".join([*bad, "", row(10, 20, 2, [3])]))
    workload = replay(path)
    (request,) = workload.requests
    assert (request.intended_s, request.prompt_tokens) == (0.0, 20)
    (note,) = workload.notes
    assert note.startswith("10 lines of")
    for reason in ("3 without", "2 no JSON", "2 with a time", "2 with a length", "1 with fewer"):
        assert reason in note


def test_a_whole_trace_has_no_notes(small: Path) -> None:
    assert replay(small).notes == ()


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        replay(tmp_path / "missing.jsonl")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"x" * 10000)[:-20])
    with pytest.raises(ConfigError, match="cannot be read"):
        replay(broken)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("{}\n")
    with pytest.raises(ConfigError, match="no request"):
        replay(empty)
    with pytest.raises(ConfigError):
        replay(empty, time_scale=0.0)
