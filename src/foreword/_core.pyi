"""foreword's C++ core: for `foreword.weights`, `text`, `kv`, `backends.cpu` and `bench` alone."""

import enum
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

# Contiguous arrays: numpy's, `array.array`, or a memoryview of either.
Bytes: TypeAlias = NDArray[np.uint8] | Buffer
Ints: TypeAlias = NDArray[np.int32] | Buffer
Floats: TypeAlias = NDArray[np.float32] | Buffer

def dtype_info(ggml_type: int) -> tuple[str, int, int] | None:
    """Name, weights in a block, bytes of a block; None for a type that foreword does not read."""

def dequantize(ggml_type: int, data: Bytes, n: int) -> memoryview:
    """``n`` stored weights as float; ``data`` holds exactly them. Releases the GIL.

    Raises:
        ValueError: the type is unknown, or ``data`` has another length.
    """

def panel_bytes(ggml_type: int, rows: int, cols: int) -> int:
    """Bytes that a matrix takes as panels.

    Raises:
        ValueError: the type is unknown.
    """

def pack_panels(ggml_type: int, data: Bytes, rows: int, cols: int, out: Bytes) -> None:
    """Pack a stored matrix into panels (csrc/include/foreword/panel.h). Releases the GIL.

    Raises:
        ValueError: a weight is not finite, or sizes do not fit each other.
    """

PANEL_VERSION: int
"""Of the panels' layout, for files that hold some."""

def checksum(data: Bytes) -> int:
    """Mix all bytes into 64 bits, as fast as memory is read. Releases the GIL."""

def skip_strings(data: Bytes, offset: int, count: int) -> tuple[int, int]:
    """Walk ``count`` GGUF strings (64-bit length, bytes) that start at ``offset``.

    Returns how many are whole, and where the next one starts: the first number is less than
    ``count`` where a string leaves the data.
    """

def read_strings(data: Bytes, offset: int, count: int) -> list[str]:
    """Decode the strings that `skip_strings` walks; bytes that are no UTF-8 become surrogates."""

class SamplingSpec:
    """How to draw; the meanings are those of `foreword.core.params.SamplingParams`.

    ``logprobs`` and ``prompt_logprobs`` are -1 where nothing is to be reported. A token that
    ``logit_bias`` names twice gets both.
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Sequence[tuple[int, float]] = ...,
        logprobs: int = -1,
        prompt_logprobs: int = -1,
    ) -> None: ...

class SamplerScratch:
    """Buffers that `sample` and `score` reuse from call to call; for one thread at a time."""

    def __init__(self) -> None: ...

_TokenLogprob = tuple[int, float, int, tuple[tuple[int, float], ...]]

def sample(
    logits: Floats,
    spec: SamplingSpec,
    *,
    seed: int,
    draws: Sequence[int],
    position: int,
    history: Sequence[int] = ...,
    num_prompt_tokens: int = 0,
    banned: Sequence[int] = ...,
    scratch: SamplerScratch,
) -> tuple[list[int], list[_TokenLogprob]]:
    """One token for each of ``draws``, and `score` of each where ``spec.logprobs`` is not -1.

    ``logits`` is edited on the way and restored. ``seed`` is in [0, 2**64). Releases the GIL.

    Raises:
        IndexError: an id is outside the vocabulary.
        ValueError: every logit is NaN, -inf or banned.
    """

def score(logits: Floats, token_id: int, top: int, scratch: SamplerScratch) -> _TokenLogprob:
    """Token, log-probability (never below -9999), rank from 1, and the ``top`` likeliest tokens.

    Raises:
        IndexError: ``token_id`` is outside the vocabulary.
    """

def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox 4x32-10: four 32-bit numbers from a counter of four and a key of two."""

class Activation(Enum):
    """The gate's function in an MLP."""

    SILU = 0
    GELU_TANH = 1

class Matrix:
    """A stored matrix, ``rows`` outputs by ``cols`` inputs: a view that keeps its data alive.

    ``panels`` is the same packed (`pack_panels`): with them, products are of integers.

    Raises:
        ValueError: the type is unknown, or ``data`` or ``panels`` has another length.
    """

    def __init__(
        self,
        data: Bytes,
        ggml_type: int,
        rows: int,
        cols: int,
        panels: Bytes | None = None,
    ) -> None: ...

class Rope:
    """Rotary positions; see `foreword.models.spec.RopeSpec`. ``factors`` is empty for none."""

    def __init__(
        self,
        *,
        base: float,
        dim: int,
        scale: float,
        factors: Floats,
        interleaved: bool,
    ) -> None: ...

class Layer:
    """One layer; see `foreword.models.spec.LayerSpec`.

    Norms that the model does not have are empty; a ``window`` of 0 is none; ``rope`` is an index.
    """

    def __init__(
        self,
        *,
        q: Matrix,
        k: Matrix,
        v: Matrix,
        output: Matrix,
        gate: Matrix,
        up: Matrix,
        down: Matrix,
        attention_norm: Floats,
        mlp_norm: Floats,
        q_norm: Floats,
        k_norm: Floats,
        post_attention_norm: Floats,
        post_mlp_norm: Floats,
        attention_scale: float,
        window: int,
        rope: int,
        activation: Activation,
    ) -> None: ...

class Sampling:
    """What is wanted of one of a step's sequences; see `foreword.core.step.SequenceStep`.

    ``sequence`` is its index in the step, ``position`` that of the token to be drawn.
    """

    def __init__(
        self,
        *,
        sequence: int,
        spec: SamplingSpec,
        seed: int,
        position: int,
        draws: Sequence[int],
        history: Sequence[int],
        banned: Sequence[int],
        score_ids: Sequence[int],
        num_prompt_tokens: int,
    ) -> None: ...

class Executor:
    """A model, its KV pool and its threads. Calls come from one thread at a time.

    ``owner`` is kept alive for as long as the executor: whatever holds the matrices' data.

    Raises:
        ValueError: this machine cannot run ``isa``, or there is no such ``kv_cache_dtype``.
    """

    def __init__(
        self,
        *,
        isa: str,
        kv_cache_dtype: str,
        num_threads: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        norm_eps: float,
        embedding_scale: float,
        embedding: Matrix,
        output: Matrix,
        output_norm: Floats,
        ropes: Sequence[Rope],
        layers: Sequence[Layer],
        owner: object,
    ) -> None: ...
    @property
    def isa(self) -> str:
        """The kernels in use."""
    @property
    def num_threads(self) -> int:
        """Threads that work on a step, the caller's among them."""
    @property
    def block_bytes(self) -> int:
        """Bytes of a KV block, over all layers."""
    def allocate(self, num_blocks: int) -> None:
        """Make the pool.

        Raises:
            MemoryError: there is no room.
            RuntimeError: there is a pool already.
        """
    def execute(
        self,
        token_ids: Ints,
        lengths: Ints,
        starts: Ints,
        block_tables: Ints,
        table_lengths: Ints,
        block_copies: Ints,
        samplings: Sequence[Sampling],
    ) -> tuple[list[tuple[list[int], list[_TokenLogprob], list[_TokenLogprob]]], float]:
        """Run a step; for each of ``samplings``, which ascend by sequence: the sampled ids, their
        log-probabilities, and those of the scored ids; and the seconds that sampling and scoring
        took. Releases the GIL.

        Token ids and block tables of all sequences stand one after the other; ``block_copies`` is
        source, destination, source, destination, …

        Raises:
            ValueError: the step names what does not exist (then nothing was touched), or no token
                can be drawn.
            IndexError: an id to sample or score with is outside the vocabulary.
        """
    def logits(
        self,
        token_ids: Ints,
        lengths: Ints,
        starts: Ints,
        block_tables: Ints,
        table_lengths: Ints,
        block_copies: Ints,
        logit_rows: Ints,
    ) -> NDArray[np.float32]:
        """The same, for the logits of some of ``token_ids``, given by ascending index."""
    def read_block(self, block: int) -> bytes:
        """A block's bytes. Raises `IndexError` where there is no such block."""
    def write_block(self, block: int, data: bytes) -> None:
        """Put back what `read_block` gave. Raises `IndexError`, or `ValueError` for other sizes."""

def available_isas() -> list[str]:
    """Kernel tables that this machine can run, fastest first."""

class PreTokenizer(enum.Enum):
    """How byte-level BPE cuts text into words; the families of rules."""

    GPT2 = 0
    SMOLLM = 1
    LLAMA3 = 2
    QWEN2 = 3
    DEFAULT = 4

def split_words(rules: PreTokenizer, text: bytes) -> list[int]:
    """Byte offsets where the words of a UTF-8 text end."""

class Tokenizer:
    """Text to ids; see csrc/include/foreword/tokenizer.h. All text is valid UTF-8, in bytes."""

    @staticmethod
    def spm(
        data: Bytes,
        offset: int,
        count: int,
        types: Ints,
        scores: Floats,
        unknown: int | None,
        add_space_prefix: bool,
    ) -> Tokenizer:
        """From ``count`` GGUF strings at ``offset``. Raises ValueError where they do not fit."""

    @staticmethod
    def bpe(
        data: Bytes,
        offset: int,
        count: int,
        types: Ints,
        merges_offset: int,
        merges_count: int,
        split: PreTokenizer,
        whole_words: bool,
    ) -> Tokenizer:
        """From the GGUF strings at the offsets. Raises ValueError where they do not fit."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def special_ids(self) -> list[int]:
        """Control and unknown tokens: those that stand for no text."""

    def encode(self, text: bytes, parse_special: bool) -> list[int]:
        """Ids of a text; with ``parse_special``, marks of `protect` are dropped. No GIL."""

    def encode_pieces(
        self, text: bytes, ends: list[int], parse_special: bool, first: bool
    ) -> list[list[int]]:
        """Ids of each piece up to one of the ``ends``, which are from `cuts` or the last. No GIL.

        ``first`` says that no text stands before. Raises ValueError for ends that do not ascend.
        """

    def cuts(self, text: bytes, spacing: int) -> list[int]:
        """Where pieces of a text have ids that do not depend on its other pieces. No GIL."""

    def find(self, text: bytes) -> int | None:
        """The id of a token (of any type but byte) by its spelling."""

    def protect(self, text: bytes) -> bytes:
        """The text with U+D800 wherever it could take part in a control token."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for. Raises IndexError."""

def pack_token_ids(token_ids: list[int]) -> bytes:
    """The ids from ``start`` on, each as four bytes, the highest first.

    Raises:
        OverflowError: an id is negative or has more than 32 bits.
    """

def sha256_chain(
    tag: bytes, parent: bytes, data: bytes, part_bytes: int, portable: bool = False
) -> list[bytes]:
    """A digest for each whole ``part_bytes`` of ``data``: of ``tag``, the one before, and the part.

    ``parent`` stands before the first. ``portable``: without the processor's own instructions.
    """

def cpu_features() -> dict[str, bool]:
    """Features that kernels might ask about, by Linux's name, and whether they can be used here."""

def kernel_builds() -> list[tuple[str, list[str]]]:
    """Every kernel table that was compiled in, fastest first, and the features that it misses."""

def arithmetic_rates(threads: int, seconds: float) -> list[tuple[str, str, float]]:
    """``int8`` or ``float32``, kernel table, multiply-adds per second of ``threads`` together.

    Each probe runs for ``seconds`` on registers alone. Releases the GIL.

    Raises:
        ValueError: no thread or no time.
    """

class ReadProbe:
    """``num_bytes`` of memory to read from."""

    def __init__(self, num_bytes: int) -> None: ...
    def rate(self, threads: int, seconds: float) -> float:
        """Bytes read per second of ``threads``, each in its own part. Releases the GIL.

        Raises:
            ValueError: no thread or no time.
        """

def kv_head_bytes(dtype: str, head_dim: int) -> int:
    """Bytes of one kv head's part of a block. Raises ValueError for an unknown ``dtype``."""

class Kernels:
    """The kernels of one instruction set, one by one, for parity tests. Results go to ``out``.

    All raise `ValueError`: where sizes do not fit, or this machine lacks the set.
    """

    def __init__(self, isa: str) -> None: ...
    def dequantize(self, ggml_type: int, data: Bytes, out: Floats) -> None: ...
    def matmul(
        self,
        x: Floats,
        w: Floats,
        out: Floats,
        accumulate: bool,
    ) -> None:
        """``x`` [tokens, k] by ``w`` [rows rounded up to 4, k], k a multiple of 16."""
    def write_kv(
        self,
        dtype: str,
        pool: Bytes,
        block: int,
        slot: int,
        key: Floats,
        value: Floats,
    ) -> None:
        """One token's key and value into ``pool`` [blocks, at least `kv_head_bytes`]."""
    def attention(
        self,
        q: Floats,
        dtype: str,
        pool: Bytes,
        block_table: Ints,
        positions: Ints,
        window: int,
        scale: float,
        out: Floats,
    ) -> None:
        """``q`` [tokens, heads, head_dim], ``pool`` as `write_kv` fills it; window 0: none."""
    def quantize(
        self,
        x: Floats,
        values: NDArray[np.int8],
        groups: Floats,
        rest_values: NDArray[np.int8] | None = None,
        rest_groups: Floats | None = None,
    ) -> None:
        """``x`` [tokens, k] to ``values`` [tokens, k rounded up to 32] and ``groups`` of them.

        A group's three words are its scale, its sum times its scale, and (an integer) its sum.
        ``rest_*``: what that left of ``x``, in the same form.
        """
    def int8_matmul(
        self,
        ggml_type: int,
        panels: Bytes,
        values: NDArray[np.int8],
        groups: Floats,
        out: Floats,
        accumulate: bool,
    ) -> None:
        """`pack_panels`' output by `quantize`'s. Releases the GIL."""
    def rms_norm(
        self,
        x: Floats,
        weight: Floats,
        eps: float,
        out: Floats,
    ) -> None: ...
    def rotate(
        self,
        x: Floats,
        cosines: Floats,
        sines: Floats,
        interleaved: bool,
    ) -> None:
        """In place."""
    def gate(self, activation: Activation, gate: Floats, up: Floats) -> None:
        """In place, in ``gate``."""
