"""The name of a block of KV: a chain of SHA-256 digests.

A block's identity covers everything that its contents depend on: what was computed with (the
root) and every token up to its end (the chain). It is the same in every process and on every
machine, so that tiers and other workers can speak of the same block.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence

_ROOT_TAG = b"foreword/kv/root/1\0"
_BLOCK_TAG = b"foreword/kv/block/1\0"


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


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Digest of the block that holds ``token_ids`` right after the block ``parent``, 32 bytes."""
    count = len(token_ids)
    data = struct.pack(f"<II{count}I", len(parent), count, *token_ids)
    return hashlib.sha256(_BLOCK_TAG + parent + data).digest()


class TokenChain:
    """Identities of the full blocks of one growing list of tokens, each computed once.

    Args:
        root: digest that the chain starts from.
        token_ids: the list; it may grow at the end, and is never changed otherwise.
    """

    __slots__ = ("_block_size", "_digests", "_root", "_token_ids")

    def __init__(self, root: bytes, token_ids: list[int], block_size: int) -> None:
        self._root = root
        self._token_ids = token_ids
        self._block_size = block_size
        self._digests: list[bytes] = []

    def tokens(self, index: int) -> tuple[int, ...]:
        """Tokens of the full block ``index``."""
        start = index * self._block_size
        return tuple(self._token_ids[start : start + self._block_size])

    def digest(self, index: int) -> bytes:
        """Identity of the full block ``index``."""
        digests = self._digests
        while len(digests) <= index:
            parent = digests[-1] if digests else self._root
            digests.append(block_digest(parent, self.tokens(len(digests))))
        return digests[index]

    def fork(self, token_ids: list[int]) -> TokenChain:
        """The chain of ``token_ids``, a copy of this chain's tokens that goes its own way."""
        other = TokenChain(self._root, token_ids, self._block_size)
        other._digests = list(self._digests)
        return other
