"""Keys and identities of blocks as the core makes them, against Python's own."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreword import _core

# FIPS 180-4's examples (NIST, Cryptographic Standards and Guidelines, example values)
EXAMPLES = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
    b"a" * 1_000_000: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
}
portable = pytest.mark.parametrize("portable", [False, True], ids=["best", "portable"])


@portable
@pytest.mark.parametrize("message", EXAMPLES, ids=len)
def test_nist_examples(message: bytes, portable: bool) -> None:
    (digest,) = _core.sha256_chain(b"", b"", message, len(message), portable)
    assert digest.hex() == EXAMPLES[message]


@portable
@given(
    tag=st.binary(max_size=40),
    parent=st.binary(max_size=40),
    data=st.binary(max_size=700),
    part_bytes=st.integers(1, 200),
)
def test_a_chain_is_what_hashlib_makes_of_it(
    portable: bool, tag: bytes, parent: bytes, data: bytes, part_bytes: int
) -> None:
    expected: list[bytes] = []
    for start in range(0, len(data) - part_bytes + 1, part_bytes):
        before = expected[-1] if expected else parent
        part = data[start : start + part_bytes]
        expected.append(hashlib.sha256(tag + before + part).digest())
    assert _core.sha256_chain(tag, parent, data, part_bytes, portable) == expected


def test_parts_have_a_size() -> None:
    with pytest.raises(ValueError, match="a part has a byte at least"):
        _core.sha256_chain(b"", b"", b"data", 0)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_are_packed_as_struct_packs_them(token_ids: list[int]) -> None:
    assert _core.pack_token_ids(token_ids) == struct.pack(f">{len(token_ids)}I", *token_ids)


@pytest.mark.parametrize("token_id", ["1", 1.0, None])
def test_only_integers_are_packed(token_id: object) -> None:
    with pytest.raises(TypeError):
        _core.pack_token_ids([1, token_id])  # type: ignore[list-item]
