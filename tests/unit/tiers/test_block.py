from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreword.kv.identity import BlockName
from foreword.tiers.block import DamagedBlockError, decode, encode

NAME = BlockName(b"d" * 32, b"p" * 32, b"tokens..")


@given(st.binary(max_size=300))
def test_contents_come_back(contents: bytes) -> None:
    assert decode(encode(NAME, contents), NAME) == contents


@given(st.binary(max_size=100), st.data())
def test_every_flipped_bit_is_found(contents: bytes, data: st.DataObject) -> None:
    damaged = bytearray(encode(NAME, contents))
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedBlockError):
        decode(bytes(damaged), NAME)


@given(st.binary(max_size=100), st.data())
def test_every_cut_is_found(contents: bytes, data: st.DataObject) -> None:
    whole = encode(NAME, contents)
    with pytest.raises(DamagedBlockError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))], NAME)


@pytest.mark.parametrize(
    "other",
    [
        NAME._replace(digest=b"e" * 32),
        NAME._replace(parent=b"q" * 32),
        NAME._replace(key=b"tokens.,"),  # a collision of digests
        NAME._replace(key=b"tokens"),
    ],
)
def test_another_block_is_found_out(other: BlockName) -> None:
    with pytest.raises(DamagedBlockError):
        decode(encode(NAME, b"contents"), other)
