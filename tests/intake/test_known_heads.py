"""Tests of known heads: only a head that is equal byte for byte, except for its length, is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.intake.known_heads import known_head
from tests.support.cases import each_case
from tests.support.intake import request

HEAD = request(b"", content_length="10")
PATTERN = known_head(HEAD, len(HEAD) + 10, 10)


@each_case("digits", ["", "0", "010", "+10", "-10", " 10", "10 ", "1_0", "0x10", "10,10", "1e1", "9" * 10])
def test_head_with_a_malformed_length_is_unknown(digits: str) -> None:
    assert PATTERN is not None
    assert PATTERN.match(HEAD) == (10, len(HEAD))
    assert PATTERN.match(HEAD.replace(b": 10\r", f": {digits}\r".encode())) is None


@given(st.data())
def test_head_that_differs_in_any_byte_is_unknown(data: st.DataObject) -> None:
    assert PATTERN is not None
    index = data.draw(st.integers(0, len(HEAD) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != HEAD[index]))
    changed = HEAD[:index] + bytes([byte]) + HEAD[index + 1 :]
    match = PATTERN.match(changed)

    is_length = HEAD.index(b": 10\r") + 2 <= index < HEAD.index(b": 10\r") + 4
    assert match is None or (is_length and bytes([byte]).isdigit())
    assert PATTERN.match(HEAD[:index]) is None


@each_case(
    ("head", "body_bytes"),
    [
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", 0, id="no length"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0, id="length 0"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 012\r\n\r\n", 12, id="a leading zero"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n", 13, id="other body length"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length:12\r\n\r\n", 12, id="no space"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12 \r\n\r\n", 12, id="trailing space"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 12\r\ncontent-length: 12\r\n\r\n", 12, id="repeated length"
        ),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n\r\n\r\n\r\n", 12, id="more than a head"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 12\r\n", 12, id="less than a head"),
    ],
)
def test_ambiguous_head_is_not_remembered(head: bytes, body_bytes: int) -> None:
    assert known_head(head, len(head) + body_bytes, body_bytes) is None
