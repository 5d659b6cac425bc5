"""The key/value part of a GGUF file. Values stay in the file until somebody asks for them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

from foreword import _core
from foreword.weights.cursor import Cursor

MAX_KEYS = 65_536
MAX_KEY_BYTES = 65_535  # the format's own limit

# GGUF's numbers for value types; those that are numbers by the letters of `struct` and `array`.
UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9
_LETTERS = {0: "B", 1: "b", 2: "H", 3: "h", UINT32: "I", 5: "i", 6: "f", _BOOL: "?"}
_LETTERS |= {10: "Q", 11: "q", 12: "d"}
_NUMBERS = {kind: struct.Struct("<" + letter) for kind, letter in _LETTERS.items()}


class StringArray(Sequence[str]):
    """An array of strings, decoded all at once on first use.

    Bytes that are not UTF-8 become lone surrogates (`surrogateescape`), because vocabularies do
    hold such tokens and a tokenizer needs them whole: ``text.encode("utf-8", "surrogateescape")``
    gives back exactly what the file has.
    """

    __slots__ = ("_count", "_data", "_offset", "_strings")

    def __init__(self, data: memoryview, offset: int, count: int) -> None:
        self._data = data
        self._offset = offset
        self._count = count
        self._strings: list[str] | None = None

    def _decoded(self) -> list[str]:
        if self._strings is None:
            self._strings = _core.read_strings(self._data, self._offset, self._count)
        return self._strings

    @property
    def location(self) -> tuple[memoryview, int, int]:
        """The file's bytes, where in them the first string's length lies, and how many there are.

        For C++ code that reads the strings itself: a vocabulary is too long for Python objects.
        """
        return self._data, self._offset, self._count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"<StringArray of {self._count}>"


MetadataValue: TypeAlias = "int | float | bool | str | array[Any] | StringArray"


class Entry(NamedTuple):
    """Where a value lies, its type, and an array's length. An array's type is that of its items."""

    kind: int
    offset: int
    length: int | None  # None: no array


class Metadata(Mapping[str, MetadataValue]):
    """A file's key/value pairs, in its order.

    Scalars are Python values, and strings are decoded as in `StringArray`. Arrays of numbers are
    copies as `array.array`, those of bools as bytes of 0 and 1; of strings, `StringArray`.
    """

    __slots__ = ("_data", "_entries", "_values")

    def __init__(self, data: memoryview, entries: Mapping[str, Entry]) -> None:
        self._data = data
        self._entries = entries
        self._values: dict[str, MetadataValue] = {}

    def __getitem__(self, key: str) -> MetadataValue:
        if key not in self._values:
            self._values[key] = self._read(self._entries[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def entry(self, key: str) -> Entry:
        """The type and place of a value. Raises KeyError."""
        return self._entries[key]

    def _read(self, entry: Entry) -> MetadataValue:
        if entry.kind == _STRING:
            if entry.length is None:
                return StringArray(self._data, entry.offset, 1)[0]
            return StringArray(self._data, entry.offset, entry.length)
        number = _NUMBERS[entry.kind]
        if entry.length is None:
            value: int | float | bool = number.unpack_from(self._data, entry.offset)[0]
            return value
        values = array("B" if entry.kind == _BOOL else _LETTERS[entry.kind])
        values.frombytes(self._data[entry.offset : entry.offset + entry.length * number.size])
        return values


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Check ``count`` key/value pairs and note where each value lies.

    Raises:
        ModelFileError: a key is empty, too long, not UTF-8 or there twice; a type is unknown; an
            array holds arrays; a bool is neither 0 nor 1; a value passes the end of the file.
    """
    entries: dict[str, Entry] = {}
    for index in range(count):
        start = cursor.offset
        key = cursor.name(f"key {index} of {count}", MAX_KEY_BYTES)
        field = f"metadata {key!r}"
        if key in entries:
            cursor.fail(field, "is there twice", start)
        entries[key] = _skip_value(cursor, field)
    return Metadata(cursor.data, entries)


def _skip_value(cursor: Cursor, field: str) -> Entry:
    start = cursor.offset
    kind, length = cursor.u32(field), None
    if kind == _ARRAY:
        start = cursor.offset
        kind, length = cursor.u32(field), cursor.u64(field)
        if kind == _ARRAY:
            cursor.fail(field, "is an array of arrays", start)
    if kind != _STRING and kind not in _NUMBERS:
        cursor.fail(field, f"has the unknown type {kind}", start)
    entry = Entry(kind, cursor.offset, length)
    items = 1 if length is None else length
    if kind == _STRING:
        cursor.skip_strings(items, field)
    else:
        cursor.skip(items * _NUMBERS[kind].size, field)
    if kind == _BOOL and bytes(cursor.data[entry.offset : cursor.offset]).strip(b"\0\1"):
        cursor.fail(field, "holds a bool that is neither 0 nor 1", entry.offset)
    return entry
