"""Seed corpus of the fuzz targets, generated from the conformance cases.

Invariant: the corpus is not committed, and inputs that a fuzzer added to it are kept.
"""  # noqa: INP001 - a script, not a module of a package

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
CASES = FUZZ.parent.parent / "tests" / "conformance"
SEED_BYTES_MAX = 64 << 10
CODING_OF = {"gzip": 1, "x-gzip": 1, "deflate": 2, "zstd": 3, "snappy": 4, "lz4": 6}
"""First byte of an `unpack` input by coding; see `CODINGS` in entry.rs."""


def cases(name: str) -> list[dict[str, dict[str, str]]]:
    """Read the cases of one file, one JSON object per line."""
    return [json.loads(line) for line in (CASES / name).read_text().splitlines() if line]


def bytes_of(packed: dict[str, str]) -> bytes:
    """Decode the bytes of a body or a request."""
    if "base64" in packed:
        return base64.b64decode(packed["base64"])
    return zlib.decompress(base64.b64decode(packed["zlib_base64"]))


def coded_body_of(case: dict[str, dict[str, str]]) -> bytes:
    """Prefix the body of a raw request with the byte that selects its coding."""
    head, _, body = bytes_of(case["request"]).partition(b"\r\n\r\n")
    coding = 0
    for line in head.decode("latin-1").lower().split("\r\n"):
        name, _, value = line.partition(":")
        if name == "content-encoding":
            coding = CODING_OF.get(value.strip(), 0)
    return bytes([coding]) + body


def write(target: str, seed: bytes) -> None:
    """Add one seed, named by its digest as libFuzzer does."""
    if len(seed) <= SEED_BYTES_MAX:
        corpus = FUZZ / "corpus" / target
        corpus.mkdir(parents=True, exist_ok=True)
        (corpus / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


def main() -> None:
    """Write all seeds."""
    for case in cases("bodies.jsonl"):
        body = bytes_of(case["body"])
        write("protobuf" if "protobuf" in str(case["content_type"]) else "json", body)
        write("unpack", b"\x01" + gzip.compress(body, mtime=0))
        write("unpack", b"\x02" + zlib.compress(body))
    for case in cases("http.jsonl"):
        write("unpack", coded_body_of(case))


if __name__ == "__main__":
    main()
