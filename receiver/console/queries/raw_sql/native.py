"""ClickHouse's format Native, in the form that the revision of a client's protocol requires.

A client that sends `client_protocol_version` expects more bytes than a file in this format has: information
in front of each block, and a flag behind the type of each column. The embedded engine writes files only.

block     number of columns, number of rows, columns
column    name, type, values: their length follows from the type, so the values are read over

Invariant: a stream of any length is converted with at most one column of one block in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from receiver.errors import InvalidStatement

NATIVE: Final = "Native"
REVISION_OF_INFO: Final = 1
"""Revision from which a block begins with information about it."""
REVISION_OF_FLAG: Final = 54_454
"""Revision from which a flag after its type says whether a column has a special encoding."""

_INFO: Final = b"\x01\x00\x02\xff\xff\xff\xff\x00"
"""The block is not an overflow of GROUP BY (field 1), and is not a bucket of one (field 2)."""
_NOT_SPECIAL: Final = b"\x00"
_BYTES_OF: Final = {
    **dict.fromkeys(("Int8", "UInt8", "Bool", "Enum8", "Nothing"), 1),
    **dict.fromkeys(("Int16", "UInt16", "Enum16", "Date", "BFloat16"), 2),
    **dict.fromkeys(("Int32", "UInt32", "Float32", "Date32", "DateTime", "Time", "IPv4", "Decimal32"), 4),
    **dict.fromkeys(("Int64", "UInt64", "Float64", "DateTime64", "Time64", "Decimal64"), 8),
    **dict.fromkeys(("Int128", "UInt128", "UUID", "IPv6", "Decimal128"), 16),
    **dict.fromkeys(("Int256", "UInt256", "Decimal256"), 32),
}
_DIGITS_OF: Final = ((9, 4), (18, 8), (38, 16), (76, 32))
"""Digits of a Decimal, and its bytes."""
_ARRAYS: Final = ("Array", "Map")
_DICTIONARY: Final = "LowCardinality"
_OWN_BYTES_OF: Final = {"Nullable": 1, **dict.fromkeys(_ARRAYS, 8), "Tuple": 0, "SimpleAggregateFunction": 0}
"""Bytes of each row in front of the parts of a composed type: whether it is NULL, or where its array ends."""
_WIDTH: Final = 0b11
"""Bits of the flags of a dictionary: a place has 1, 2, 4 or 8 bytes."""
_MORE: Final = 0x80
"""Bit of a byte after which the number continues."""
_WORDS: Final = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|[(),]|[^(),'`]+")
_NAMED: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*|`(?:[^`\\]|\\.)*`) (.*)", re.DOTALL)


def empty_block(columns: Iterable[tuple[str, str]]) -> bytes:
    """Return a block without rows, from the names and types of its columns."""
    listed = list(columns)
    return _number(len(listed)) + _number(0) + b"".join(_text(name) + _text(kind) for name, kind in listed)


def in_revision(pieces: Iterator[bytes], revision: int) -> Iterator[bytes]:
    """Yield blocks of a file in the form of a revision of the protocol."""
    if revision < REVISION_OF_INFO:
        yield from pieces
        return
    flag = _NOT_SPECIAL if revision >= REVISION_OF_FLAG else b""
    source = _Source(pieces)
    while not source.is_at_end():
        columns, rows = source.number(), source.number()
        yield _INFO + source.taken()
        for _ in range(columns):
            source.skip_texts(1)
            kind = source.text()
            yield source.taken() + flag
            if rows:
                _skip_prefix(source, kind)
            _skip_values(source, kind, rows)
            yield source.taken()


def _skip_prefix(source: _Source, kind: str) -> None:
    """Read over what precedes the values of a column: a version for each dictionary in its type."""
    name, parts = _split(kind)
    if name == _DICTIONARY:
        source.skip(8)
    elif name in _OWN_BYTES_OF:
        for part in parts:
            _skip_prefix(source, part)


def _skip_values(source: _Source, kind: str, rows: int) -> None:
    # The format has no byte for no values.
    if not rows:
        return
    name, parts = _split(kind)
    if name == "String":
        source.skip_texts(rows)
    elif name == _DICTIONARY:
        _skip_dictionary(source, parts[0])
    elif name in _OWN_BYTES_OF:
        source.skip(rows * _OWN_BYTES_OF[name])
        # The offset of the last array is the number of elements of all arrays.
        count = source.integer_before() if name in _ARRAYS else rows
        for part in parts:
            _skip_values(source, part, count)
    else:
        source.skip(rows * _value_bytes(name, parts))


def _skip_dictionary(source: _Source, kind: str) -> None:
    """Read over the different values, and over the place of each row's value among them."""
    name, parts = _split(kind)
    flags = source.integer()
    _skip_values(source, parts[0] if name == "Nullable" else kind, source.integer())
    source.skip(source.integer() << (flags & _WIDTH))


def _value_bytes(name: str, parts: list[str]) -> int:
    """Return the length of a value of a type whose values all have the same length."""
    if name == "FixedString":
        return int(parts[0])
    if name == "Decimal":
        return next(size for digits, size in _DIGITS_OF if int(parts[0]) <= digits)
    if name.startswith("Interval"):
        return 8
    if name not in _BYTES_OF:
        raise InvalidStatement(
            f"a column has the type {name}, which this protocol cannot send; expected toString()"
        )
    return _BYTES_OF[name]


def _split(kind: str) -> tuple[str, list[str]]:
    """Return the name of a type and its arguments: for a composed type, the types of its parts."""
    name, opening, rest = kind.partition("(")
    arguments, depth = [""], 0
    for word in _WORDS.findall(rest.removesuffix(")") if opening else ""):
        if word == "," and not depth:
            arguments.append("")
            continue
        depth += (word == "(") - (word == ")")
        arguments[-1] += word
    parts = [argument.strip() for argument in arguments]
    if name == "Tuple":
        parts = [match[1] if (match := _NAMED.fullmatch(part)) else part for part in parts]
    return name, parts[1:] if name == "SimpleAggregateFunction" else parts


class _Source:
    """Reads a stream of bytes that arrives in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._bytes = bytearray()
        self._place = 0

    def is_at_end(self) -> bool:
        return self._place == len(self._bytes) and not self._pull()

    def taken(self) -> bytes:
        """Return the bytes that were read since the last call, and drop them."""
        taken = bytes(self._bytes[: self._place])
        del self._bytes[: self._place]
        self._place = 0
        return taken

    def skip(self, count: int) -> None:
        """Read over this number of bytes. Raises `InvalidStatement` if there are fewer."""
        self._place += count
        while self._place > len(self._bytes):
            if not self._pull():
                raise InvalidStatement("the store's answer ended within a block")

    def number(self) -> int:
        """Read a number in groups of 7 bits."""
        value = shift = 0
        while True:
            self.skip(1)
            byte = self._bytes[self._place - 1]
            value |= (byte & ~_MORE) << shift
            shift += 7
            if byte < _MORE:
                return value

    def text(self) -> str:
        length = self.number()
        self.skip(length)
        return self._bytes[self._place - length : self._place].decode()

    def skip_texts(self, count: int) -> None:
        for _ in range(count):
            # Most texts are short and complete: one byte is their length.
            if self._place < len(self._bytes) and (length := self._bytes[self._place]) < _MORE:
                self._place += 1 + length
                if self._place > len(self._bytes):
                    self.skip(0)
            else:
                self.skip(self.number())

    def integer(self) -> int:
        """Read a number of 8 bytes."""
        self.skip(8)
        return self.integer_before()

    def integer_before(self) -> int:
        """Return the number that the last 8 bytes are."""
        return int.from_bytes(self._bytes[self._place - 8 : self._place], "little")

    def _pull(self) -> bool:
        piece = next(self._pieces, b"")
        self._bytes += piece
        return bool(piece)


def _number(value: int) -> bytes:
    """Return a number in groups of 7 bits."""
    groups = bytearray()
    while value >= _MORE:
        groups.append(value & 0x7F | _MORE)
        value >>= 7
    return bytes((*groups, value))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _number(len(encoded)) + encoded
