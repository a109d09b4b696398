"""Content coding of answers: the choice by the weights of a client, and encoders that hold nothing back."""

from __future__ import annotations

import zlib

from backports import zstd

from receiver.console.api.coding import Coding, encoder_of, preferred_coding
from tests.support.cases import each_case


@each_case(
    ("accepted", "coding"),
    [
        ("", None),
        ("identity", None),
        ("br", None),
        ("gzip", Coding.GZIP),
        ("GZIP, deflate, br", Coding.GZIP),
        ("gzip, deflate, br, zstd", Coding.ZSTD),
        ("gzip;q=1.0, zstd;q=0.5", Coding.GZIP),
        ("gzip;q=0.4,\tzstd ; q=0.5", Coding.ZSTD),
        ("zstd;q=0, gzip", Coding.GZIP),
        ("zstd;q=0, gzip;q=0.0", None),
        ("*", Coding.ZSTD),
        ("zstd;q=0, *;q=0.1", Coding.GZIP),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", Coding.GZIP),
        ("identity;q=0", None),
        ("gzip;q=much", None),
        ("xgzip", None),
    ],
)
def test_preferred_coding_follows_the_weights(accepted: str, coding: Coding | None) -> None:
    assert preferred_coding(accepted) == coding


@each_case("coding", Coding)
def test_each_piece_of_a_compressed_answer_can_be_read_when_it_arrives(coding: Coding) -> None:
    encoder = encoder_of(coding)
    decoder = zstd.ZstdDecompressor() if coding is Coding.ZSTD else zlib.decompressobj(16 + zlib.MAX_WBITS)
    lines = [b'{"a":1}\n', b'{"b":"' + b"x" * 100_000 + b'"}\n', b'{"end":{"count":2}}\n']

    for line in lines:
        assert decoder.decompress(encoder.encode(line)) == line
    decoder.decompress(encoder.end())
    assert decoder.eof
