"""Tests of single values: sizes, addresses, store URLs."""

import pytest

from receiver.config.addresses import Address, StoreUrl, parse_address, parse_store_url
from receiver.config.values import ValueProblem, size_bytes
from receiver.settings import GIB, MIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GiB", 8 * GIB),
        ("64 MiB", 64 * MIB),
        ("512 MB", 512_000_000),
        ("1.5KiB", 1536),
        ("1_000", 1000),
        ("0", 0),
    ],
)
def test_size_is_parsed(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "4G", "-1", "1e3", "GiB", "1.5B", "8 Gi B", "0x10"])
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueProblem):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "host", "is_loopback"),
    [
        ("127.0.0.1:1", "127.0.0.1", True),
        ("127.9.9.9:1", "127.9.9.9", True),
        ("localhost:1", "localhost", True),
        ("[::1]:1", "::1", True),
        ("0.0.0.0:1", "0.0.0.0", False),  # noqa: S104 - nothing is bound
        ("[::]:1", "::", False),
        ("example.org:1", "example.org", False),
    ],
)
def test_address_reports_whether_it_is_loopback(text: str, host: str, *, is_loopback: bool) -> None:
    address = parse_address(text)

    assert address == Address(host, 1)
    assert address.is_loopback == is_loopback
    assert str(address) == text


def test_store_url_is_parsed() -> None:
    assert parse_store_url("embedded") is None
    assert parse_store_url("https://u%40x:p%3A@h/otel") == StoreUrl(
        secure=True, host="h", port=8443, user="u@x", password="p:", database="otel"
    )
    assert parse_store_url("http://[::1]:9/") == StoreUrl(
        secure=False, host="::1", port=9, user="", password="", database=""
    )
