"""JSON of answers: hostile texts end in a typed error, and harmless mistakes are repaired."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

from receiver.platform.client import errors, stream_items
from receiver.platform.client.event import parse_event
from receiver.platform.client.json_text import DEPTH_MAX, converted, parse
from receiver.platform.client.stream_items import ArrayReader, LineReader
from tests.support.cases import each_case
from tests.support.platform_corpus import HOSTILE_JSON


@each_case("body", HOSTILE_JSON.values(), ids=HOSTILE_JSON.keys())
def test_hostile_json_is_no_event(body: bytes) -> None:
    with pytest.raises(errors.WrongAnswer) as caught:
        parse_event(body)

    assert len(str(caught.value)) < 200


@each_case("body", HOSTILE_JSON.values(), ids=HOSTILE_JSON.keys())
@each_case("piece_bytes", [7, 1_000_000])
@each_case("is_array", [False, True])
def test_hostile_json_in_a_stream_is_an_error(body: bytes, piece_bytes: int, *, is_array: bool) -> None:
    reader: ArrayReader | LineReader = ArrayReader() if is_array else LineReader()
    sent = b"[" + body + b"]" if is_array else body
    pieces = [sent[place : place + piece_bytes] for place in range(0, len(sent), piece_bytes)]

    with pytest.raises(errors.WrongAnswer):
        read_all(reader, pieces)


def read_all(reader: ArrayReader | LineReader, pieces: Sequence[bytes]) -> None:
    texts = [text for piece in pieces for text in reader.feed(piece)]
    for text in [*texts, *reader.end()]:
        parse_event(text)


def test_depth_of_nested_arrays_and_objects_is_limited() -> None:
    for begin, end in ((b"[", b"]"), (b'{"a":', b"}")):
        allowed = begin * DEPTH_MAX + b"1" + end * DEPTH_MAX
        assert parse(allowed, "the answer")
        with pytest.raises(errors.NotJson, match="64 levels"):
            parse(begin + allowed + end, "the answer")

    # Brackets in texts and side by side are not nested.
    assert parse(json.dumps(["[" * 200, '"\\[' * 200, *[[]] * 200]).encode(), "the answer")


def test_last_value_of_a_repeated_key_is_used_everywhere() -> None:
    event = parse_event(b'{"type":"a","type":"b","created":1,"payload":{"id":"1","id":"2"}}')

    assert (event.type, event.raw["type"]) == ("b", "b")
    assert (event.payload.id, event.raw["payload"]["id"]) == ("2", "2")


@each_case(
    ("text", "expected"),
    [
        (b'"cut \\ud83d"', "cut \ufffd"),
        (b'"\\ude00 cut"', "\ufffd cut"),
        (b'"whole \\ud83d\\ude00"', "whole 😀"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd😀"),
        (b'"\\\\ud83d \\ud83d"', "\\ud83d \ufffd"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'"\xf0\x9f\x98"', "\ufffd"),
    ],
)
def test_characters_that_were_cut_are_replaced(text: bytes, expected: str) -> None:
    assert parse(text, "the answer") == expected


def test_numbers_keep_64_bits() -> None:
    assert parse(b"[18446744073709551615, -9223372036854775808]", "a") == [2**64 - 1, -(2**63)]


def test_error_of_a_text_that_is_not_json_does_not_quote_it() -> None:
    with pytest.raises(errors.NotJson, match="at character 18") as caught:
        parse(b'{"a": "tok_Secret', "the answer")

    assert "tok_Secret" not in str(caught.value)
    assert caught.value.__cause__ is None


class Named(msgspec.Struct):
    name: str


def test_error_of_a_wrong_shape_does_not_quote_the_value() -> None:
    with pytest.raises(errors.WrongShape, match=r"Expected `str`, got `int` - at `\$.name`") as caught:
        converted({"name": 12345}, Named, "the answer")

    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("reader", [ArrayReader, LineReader])
def test_size_of_a_line_or_an_element_is_limited(
    reader: type[ArrayReader | LineReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_items, "ITEM_BYTES_MAX", 100)
    allowed = b'"' + b"a" * 98 + b'"'
    sent = allowed + b"\n" if reader is LineReader else b"[" + allowed + b"]"
    assert list(reader().feed(sent)) == [allowed]
    for pieces in ([b'["' + b"a" * 200], [b'["', *[b"a"] * 200], [b'["' + b"a" * 200 + b'"]\n']):
        with pytest.raises(errors.AnswerTooLarge, match="100 bytes"):
            read_all(reader(), pieces)
