"""Media types: reads the content type, charset and content codings of a request.

Invariant: the answer has the request's type, or JSON if that is unknown.
Never: guesses. An unknown type or coding is refused, because some compressed bodies parse as protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from receiver.errors import UnsupportedMedia
from receiver.model import ContentKind

KIND_OF = {
    "application/x-protobuf": ContentKind.PROTOBUF,
    "application/protobuf": ContentKind.PROTOBUF,
    "application/x-google-protobuf": ContentKind.PROTOBUF,
    "application/vnd.google.protobuf": ContentKind.PROTOBUF,
    "application/json": ContentKind.JSON,
    "application/x-ndjson": ContentKind.NDJSON,
    "application/jsonl": ContentKind.NDJSON,
}
CODING_OF = {
    "gzip": "gzip",
    "x-gzip": "gzip",
    "deflate": "deflate",
    "zlib": "deflate",
    "zstd": "zstd",
    "snappy": "snappy",
    "x-snappy-framed": "x-snappy-framed",
    "lz4": "lz4",
}
SUPPORTED_CODINGS = "gzip, zstd, deflate, snappy, lz4"
"""Value of the `Accept-Encoding` header in a 415."""
CODINGS_MAX = 2
"""Maximum number of content codings: a proxy may compress twice by accident, but not three times."""
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
OTHER_TYPES = frozenset(
    {
        *("application/cbor", "application/msgpack", "application/octet-stream", "application/x-msgpack"),
        *("application/vnd.apache.thrift.binary", "application/x-thrift"),
        "application/x-www-form-urlencoded",
        *("application/cloudevents+json", "application/json-seq", "application/ld+json", "application/xml"),
        *("multipart/form-data", "text/csv", "text/html", "text/json", "text/plain", "text/xml"),
    }
)
"""Types that the answer to an unsupported request names. Any other is text of the sender, never repeated."""
OTHER_CODINGS = frozenset({"br", "brotli", "bzip2", "compress", "dcz", "lzma", "xz"})
"""The same for content codings."""
SUPPORTED_TYPES = "application/x-protobuf, application/json or application/x-ndjson"


def answer_kind(content_type: str | None) -> ContentKind:
    """Return the encoding of the answer; never raises, unlike `content_kind`."""
    return _kind_of(content_type) or ContentKind.JSON


def is_otlp(content_type: str | None) -> bool:
    """Return whether a Content-Type header names one of the types in which OTLP is sent."""
    return _kind_of(content_type) is not None


def _kind_of(content_type: str | None) -> ContentKind | None:
    name = (content_type or "").partition(";")[0].strip()
    return KIND_OF.get(name.lower()) if name.isascii() else None


# Exporters send a few values again and again; the limit is for senders that vary them.
@lru_cache(maxsize=64)
def content_kind(content_type: str | None) -> ContentKind:
    """Read a Content-Type header. Raises `UnsupportedMedia`."""
    if not content_type:
        raise UnsupportedMedia(f"content type is missing; expected {SUPPORTED_TYPES}")
    if not content_type.isascii():
        raise UnsupportedMedia(f"content type is not ASCII; expected {SUPPORTED_TYPES}")
    name, _, parameters = content_type.lower().partition(";")
    name = name.strip()
    # A likely mistake of configuration, which the general message would not explain.
    if name.startswith("application/grpc"):
        raise UnsupportedMedia("the request is gRPC; expected the exporter protocol http/protobuf")
    kind = KIND_OF.get(name)
    if kind is None:
        named = f" '{name}'" if name in OTHER_TYPES else ""
        raise UnsupportedMedia(f"content type{named} is not supported; expected {SUPPORTED_TYPES}")
    # A charset has no meaning for protobuf.
    if kind is not ContentKind.PROTOBUF and not CHARSETS.issuperset(_charsets(parameters)):
        raise UnsupportedMedia("charset is not supported; expected utf-8")
    return kind


def require_plain_json(content_type: str | None, content_encodings: Sequence[str]) -> None:
    """Check the media type of a webhook. Raises `UnsupportedMedia`."""
    try:
        is_plain = content_kind(content_type) is ContentKind.JSON and not codings(content_encodings)
    # Its message lists the types of deliveries.
    except UnsupportedMedia:
        is_plain = False
    if not is_plain:
        raise UnsupportedMedia("a webhook has another content type or is compressed; expected plain JSON")


def _charsets(parameters: str) -> list[str]:
    pairs = (parameter.partition("=") for parameter in parameters.split(";"))
    return [value.strip().strip("\"'") for name, _, value in pairs if name.strip() == "charset"]


def codings(headers: Sequence[str]) -> tuple[str, ...]:
    """Read the Content-Encoding headers: names in the order applied. Raises `UnsupportedMedia`."""
    # Several headers mean the same as one header with a list (RFC 9110, 5.3).
    return _codings(",".join(headers)) if headers else ()


@lru_cache(maxsize=64)
def _codings(header: str) -> tuple[str, ...]:
    if not header.isascii():
        raise UnsupportedMedia(f"content encoding is not ASCII; expected {SUPPORTED_CODINGS}")
    names = [name.strip() for name in header.lower().split(",")]
    # A list may have empty elements (RFC 9110, 5.6.1).
    applied = tuple(CODING_OF.get(name, "") for name in names if name not in {"", "identity"})
    if "" in applied:
        named = next((f" '{name}'" for name in names if name in OTHER_CODINGS), "")
        raise UnsupportedMedia(f"content encoding{named} is not supported; expected {SUPPORTED_CODINGS}")
    if len(applied) > CODINGS_MAX:
        raise UnsupportedMedia(f"body has {len(applied)} content encodings; expected at most {CODINGS_MAX}")
    return applied
