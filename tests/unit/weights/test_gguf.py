"""Reading sound files."""

from __future__ import annotations

import time
import tracemalloc
from array import array
from pathlib import Path

import gguf
import numpy as np
import pytest
from support.gguf_writer import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U64,
    Tensor,
    Typed,
    gguf_bytes,
)

from foreword.weights.gguf import GGUFFile
from foreword.weights.metadata import StringArray

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def floats(data: memoryview) -> np.ndarray:
    return np.frombuffer(data, "<f4")


def open_bytes(folder: Path, raw: bytes) -> GGUFFile:
    path = folder / "model.gguf"
    path.write_bytes(raw)
    return GGUFFile.open(path)


@pytest.mark.parametrize("version", [2, 3])
def test_tensors(tmp_path: Path, version: int) -> None:
    tensors = {
        "a.weight": Tensor.f32(WEIGHTS),
        "b": Tensor((2, 32), 8, bytes(range(68))),
        "c": Tensor((2, 3, 4, 5), 1, bytes(240)),
    }
    file = open_bytes(tmp_path, gguf_bytes({"general.name": "x"}, tensors, version=version))
    assert file.version == version
    assert file.alignment == 32
    assert list(file.tensors) == ["a.weight", "b", "c"]
    info = file.tensors["b"]
    assert (info.shape, info.dtype, info.dtype_name, info.nbytes) == ((2, 32), 8, "Q8_0", 68)
    assert info.offset % 32 == 0
    assert file.tensors["c"].shape == (2, 3, 4, 5)
    np.testing.assert_array_equal(floats(file.data("a.weight")).reshape(3, 4), WEIGHTS)
    assert file.data("b").tobytes() == bytes(range(68))


def test_data_is_a_read_only_view(tmp_path: Path) -> None:
    file = open_bytes(tmp_path, gguf_bytes({}, {"a": Tensor.f32(WEIGHTS)}))
    view = file.data("a")
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    with pytest.raises(KeyError):
        file.data("b")


def test_views_outlive_the_file(tmp_path: Path) -> None:
    with open_bytes(tmp_path, gguf_bytes({"k": "v"}, {"a": Tensor.f32(WEIGHTS)})) as file:
        view = file.data("a")
    assert not file.tensors
    assert not file.metadata
    np.testing.assert_array_equal(floats(view), WEIGHTS.ravel())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (U8, 255),
        (I8, -128),
        (U16, 65535),
        (I16, -32768),
        (I32, -(2**31)),
        (U64, 2**64 - 1),
        (I64, -(2**63)),
        (F32, 0.5),
        (F64, 0.1),
    ],
)
def test_numbers(tmp_path: Path, kind: int, value: float) -> None:
    raw = gguf_bytes({"odd": "x", "one": Typed(kind, value), "many": Typed(kind, [value, 1])}, {})
    metadata = open_bytes(tmp_path, raw).metadata
    assert metadata["one"] == value
    assert type(metadata["one"]) is type(value)
    many = metadata["many"]
    assert isinstance(many, array)
    assert many.tolist() == [value, 1]


def test_other_values(tmp_path: Path) -> None:
    raw = gguf_bytes(
        {"yes": True, "flags": [True, False], "empty": Typed(STRING, []), "none": ""}, {}
    )
    metadata = open_bytes(tmp_path, raw).metadata
    assert list(metadata) == ["yes", "flags", "empty", "none"]
    assert metadata["yes"] is True
    assert np.asarray(metadata["flags"]).tolist() == [True, False]
    assert list(metadata["empty"]) == []  # type: ignore[arg-type]
    assert metadata["none"] == ""
    assert "nothing" not in metadata


def test_strings_keep_their_bytes(tmp_path: Path) -> None:
    """A vocabulary may hold pieces of characters; their bytes must survive."""
    exact = [b"plain", b"", "\u2581é😀".encode(), b"\xff\xfe", b"\xe2\x82", b"a\0b"]
    raw = gguf_bytes({"tokens": Typed(STRING, exact), "s": Typed(STRING, b"\xf0\x9f")}, {})
    metadata = open_bytes(tmp_path, raw).metadata
    tokens = metadata["tokens"]
    assert isinstance(tokens, StringArray)
    assert len(tokens) == len(exact)
    assert [text.encode("utf-8", "surrogateescape") for text in tokens] == exact
    assert tokens[0] == "plain"
    assert tokens[1:3] == ["", "\u2581é😀"]
    assert str(metadata["s"]).encode("utf-8", "surrogateescape") == b"\xf0\x9f"


@pytest.mark.parametrize("alignment", [8, 64, 2**20])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    tensors = {"a": Tensor.f32(WEIGHTS), "b": Tensor.f32(WEIGHTS + 1)}
    raw = gguf_bytes({"general.alignment": alignment}, tensors, alignment=alignment)
    file = open_bytes(tmp_path, raw)
    assert file.alignment == alignment
    np.testing.assert_array_equal(floats(file.data("b")).reshape(3, 4), WEIGHTS + 1)


def test_fingerprint_follows_header_and_size(tmp_path: Path) -> None:
    raw = gguf_bytes({"k": 1}, {"a": Tensor.f32(WEIGHTS)})
    same = gguf_bytes({"k": 1}, {"a": Tensor.f32(WEIGHTS + 1)})
    other = gguf_bytes({"k": 2}, {"a": Tensor.f32(WEIGHTS)})
    prints = [open_bytes(tmp_path, each).fingerprint for each in (raw, same, other, raw + bytes(8))]
    assert len(prints[0]) == 32
    assert prints[0] == prints[1]
    assert len({prints[0], prints[2], prints[3]}) == 3


def test_reads_what_the_gguf_package_writes(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list(["a", "bc", "é"])
    writer.add_token_scores([0.0, -1.5, 2.0])
    writer.add_add_bos_token(True)
    writer.add_tensor("t", WEIGHTS)
    writer.add_tensor("q", np.zeros((4, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = GGUFFile.open(path)
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["llama.block_count"] == 2
    assert list(file.metadata["tokenizer.ggml.tokens"]) == ["a", "bc", "é"]  # type: ignore[arg-type]
    assert np.asarray(file.metadata["tokenizer.ggml.scores"]).tolist() == [0.0, -1.5, 2.0]
    assert file.metadata["tokenizer.ggml.add_bos_token"] is True
    assert file.tensors["t"].shape == (3, 4)
    assert file.tensors["q"].shape == (4, 32)
    np.testing.assert_array_equal(floats(file.data("t")).reshape(3, 4), WEIGHTS)


@pytest.mark.gemma
def test_a_large_vocabulary_is_fast(gemma_path: Path) -> None:
    """262,144 tokens in little processor time (0.04 s here); opening decodes none of them."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        file = GGUFFile.open(gemma_path)
        values = [file.metadata[key] for key in file.metadata]
        decoded = sum(len(list(v)) for v in values if isinstance(v, StringArray))
        seconds.append(time.process_time() - start)
    assert decoded >= 262_144
    assert min(seconds) < 0.4

    tracemalloc.start()
    GGUFFile.open(gemma_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.model
def test_agrees_with_the_gguf_package_on_a_real_file(smollm2_path: Path) -> None:
    theirs = gguf.GGUFReader(smollm2_path)
    ours = GGUFFile.open(smollm2_path)
    assert [t.name for t in theirs.tensors] == list(ours.tensors)
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert (info.dtype, info.offset, info.nbytes) == (
            int(tensor.tensor_type),
            tensor.data_offset,
            tensor.n_bytes,
        )
        assert info.shape == tuple(tensor.shape.tolist()[::-1])
    names = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert names == list(ours.metadata)
    for key in ("llama.rope.freq_base", "tokenizer.chat_template", "tokenizer.ggml.merges"):
        value = ours.metadata[key]
        assert theirs.fields[key].contents() == (
            list(value) if isinstance(value, StringArray) else value
        )
