"""Token ids of text that came before: a growing chat, or a new question about the same document."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain

from foreword import _core

_PIECE_BYTES = 2048  # at least; a look-up costs a few per cent of tokenising so much
_LEAST_BYTES = 8192  # a shorter text is tokenised in half a millisecond
_MAX_BYTES = 16 << 20
_OVERHEAD_BYTES = 256  # of an entry, beside its text and its ids

_Key = tuple[str, bool, bool, bytes]


class PieceMemo:
    """Tokenises long texts in pieces and remembers the ids of the latest of these.

    A text is cut only where the ids of one side cannot depend on the other
    (`_core.Tokenizer.cuts`), and where it is cut depends on the text before alone. So ids are
    always those of the whole text, and texts that begin alike share their pieces. A text without
    such places (few of its words are in Latin letters) is a single piece.

    Pieces are found only under the salt that they were remembered with: how long tokenising takes
    tells nobody what others have sent under theirs. Threads may share a memo.

    Args:
        max_bytes: memory for pieces; the least recently used are dropped. A piece that alone
            exceeds it is not remembered.
    """

    def __init__(self, core: _core.Tokenizer, max_bytes: int = _MAX_BYTES) -> None:
        self._core = core
        self._max_bytes = max_bytes
        self._pieces: OrderedDict[_Key, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_bytes = 0

    def encode(self, text: bytes, parse_special: bool, salt: str = "") -> list[int]:
        """Return what the core's ``encode`` does."""
        if len(text) < _LEAST_BYTES:
            return self._core.encode(text, parse_special)
        ends = [*self._core.cuts(text, _PIECE_BYTES), len(text)]
        keys = [
            (salt, parse_special, begin == 0, text[begin:end])
            for begin, end in zip([0, *ends], ends, strict=False)
        ]
        known = self._known(keys)
        begin = ends[len(known) - 1] if known else 0
        new_ends = [end - begin for end in ends[len(known) :]]
        # All in one call: the GIL is waited for once.
        new = self._core.encode_pieces(text[begin:], new_ends, parse_special, begin == 0)
        self._remember(keys[len(known) :], new)
        return list(chain(*known, *new))

    def _known(self, keys: Sequence[_Key]) -> list[array[int]]:
        """The ids of the first pieces, as far as they are remembered."""
        known = []
        with self._lock:
            for key in keys:
                ids = self._pieces.get(key)
                if ids is None:
                    break
                self._pieces.move_to_end(key)
                known.append(ids)
        return known

    def _remember(self, keys: Sequence[_Key], pieces: Sequence[list[int]]) -> None:
        entries = [(key, array("i", ids)) for key, ids in zip(keys, pieces, strict=True)]
        with self._lock:
            for key, ids in entries:
                size = _size(key, ids)
                if size > self._max_bytes or key in self._pieces:
                    continue
                self._pieces[key] = ids
                self.num_bytes += size
                while self.num_bytes > self._max_bytes:
                    self.num_bytes -= _size(*self._pieces.popitem(last=False))


def _size(key: _Key, ids: array[int]) -> int:
    salt, _, _, text = key
    return len(salt) + len(text) + len(ids) * ids.itemsize + _OVERHEAD_BYTES
