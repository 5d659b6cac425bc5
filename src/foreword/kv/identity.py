"""The name of a block of KV: a chain of SHA-256 digests.

A block's identity covers everything that its contents depend on: what was computed with (the
root) and every token up to its end (the chain). It is the same in every process and on every
machine, so that tiers and other workers can speak of the same block.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

from foreword import _core

TOKEN_BYTES = 4  # a token id in a key: big-endian, so that keys sort as their tokens do

_ROOT_TAG = b"foreword/kv/root/1\0"
_BLOCK_TAG = b"fw/block/2\0"  # short: with it, a block of 16 tokens is hashed in two rounds


def root_digest(parts: Mapping[str, bytes]) -> bytes:
    """Digest of what all blocks of a cache have in common, 32 bytes.

    Args:
        parts: named inputs, such as the model's fingerprint and the arithmetic. Names and values
            are length-prefixed: no two different mappings give the same input to the hash.
    """
    state = hashlib.sha256(_ROOT_TAG)
    for name in sorted(parts):
        key, value = name.encode(), parts[name]
        state.update(struct.pack("<IQ", len(key), len(value)) + key + value)
    return state.digest()


def salted(root: bytes, salt: str) -> bytes:
    """The root of the blocks that only requests with ``salt`` may share; no salt, the same root."""
    return root_digest({"root": root, "salt": salt.encode()}) if salt else root


def token_key(token_ids: list[int]) -> bytes:
    """Token ids as bytes that sort, and begin one another, as the lists do.

    Raises:
        OverflowError: an id is negative or has more than 32 bits.
    """
    return _core.pack_token_ids(token_ids)


def block_digests(parent: bytes, keys: bytes, block_bytes: int) -> list[bytes]:
    """Digests of consecutive blocks, 32 bytes each.

    Args:
        parent: that of the block before them, or the root's: always 32 bytes, so that where it ends
            is certain.
        keys: the tokens of whole blocks, see `token_key`.
        block_bytes: size of the key of one.
    """
    return _core.sha256_chain(_BLOCK_TAG, parent, keys, block_bytes)


class BlockName(NamedTuple):
    """What a block is called everywhere, and what makes sure that it is the one.

    Attributes:
        digest: its identity, see `block_digests`.
        parent: that of the block before it, or the root's.
        key: its tokens, see `token_key`.
    """

    digest: bytes
    parent: bytes
    key: bytes


class TokenChain:
    """One growing list of tokens as keys and identities of blocks, each made once.

    Args:
        root: digest that the chain starts from.
        token_ids: the list; it may grow at the end, and is never changed otherwise.

    Attributes:
        root: the same.
    """

    __slots__ = ("_block_bytes", "_digests", "_packed", "_token_ids", "root")

    def __init__(self, root: bytes, token_ids: list[int], block_size: int) -> None:
        self.root = root
        self._token_ids = token_ids
        self._block_bytes = block_size * TOKEN_BYTES
        self._packed = b""  # the tokens that there were at first: a prompt, most often
        self._digests: list[bytes] = []

    def key(self, index: int) -> bytes:
        """Tokens of the full block ``index``."""
        size = self._block_bytes
        start, stop = index * size, (index + 1) * size
        if stop <= len(self._packed):
            return self._packed[start:stop]
        return self.span(start // TOKEN_BYTES, stop // TOKEN_BYTES)

    def span(self, start: int, stop: int) -> bytes:
        """Tokens at the positions ``start … stop-1``."""
        if not self._packed:
            self._packed = token_key(self._token_ids)
        if stop * TOKEN_BYTES <= len(self._packed):
            return self._packed[start * TOKEN_BYTES : stop * TOKEN_BYTES]
        return token_key(self._token_ids[start:stop])  # generated: asked for once, most often

    def digest(self, index: int) -> bytes:
        """Identity of the full block ``index``, 32 bytes."""
        digests, size = self._digests, self._block_bytes
        if len(digests) <= index:
            parent = digests[-1] if digests else self.root
            first, stop = len(digests) * size, (index + 1) * size
            keys = self.span(first // TOKEN_BYTES, stop // TOKEN_BYTES)
            digests += block_digests(parent, keys, size)
        return digests[index]

    def parent(self, index: int) -> bytes:
        """Identity of what comes before block ``index``: a block, or the root."""
        return self.digest(index - 1) if index else self.root

    def name(self, index: int) -> BlockName:
        """The name of the full block ``index``."""
        return BlockName(self.digest(index), self.parent(index), self.key(index))

    def fork(self, token_ids: list[int]) -> TokenChain:
        """The chain of ``token_ids``, a copy of this chain's tokens that goes its own way."""
        other = TokenChain(self.root, token_ids, self._block_bytes // TOKEN_BYTES)
        other._packed = self._packed
        other._digests = list(self._digests)
        return other
