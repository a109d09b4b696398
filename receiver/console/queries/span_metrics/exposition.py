"""Formats in which Prometheus scrapes: its text format, OpenMetrics, and protobuf.

Native histograms exist in protobuf only, exemplars in OpenMetrics and protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from receiver.console.queries.span_metrics.families import (
    PREFIX,
    SCHEMA,
    Family,
    HistogramSample,
    MetricSample,
)
from receiver.console.queries.span_metrics.series import ZERO, TraceExemplar


class Exposition(Enum):
    """A format, and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


_TYPES: Final = {
    "application/vnd.google.protobuf": Exposition.PROTOBUF,
    "application/openmetrics-text": Exposition.OPEN_METRICS,
    "text/plain": Exposition.TEXT,
}


def preferred(accept: str) -> Exposition:
    """Return the format that a client prefers by its header `Accept`; the text format by default."""
    best, best_weight = Exposition.TEXT, 0.0
    for item in accept.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        found = dict(part.split("=", 1) for part in parameters if "=" in part)
        form = _TYPES.get(name)
        # Other encodings of protobuf, such as text, are not served.
        if form is Exposition.PROTOBUF and found.get("encoding", "delimited") != "delimited":
            continue
        weight = _weight(found.get("q", "1"))
        if form is not None and weight > best_weight:
            best, best_weight = form, weight
    return best


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def rendered(families: Iterable[Family], form: Exposition) -> bytes:
    """Return the body of a scrape."""
    if form is Exposition.PROTOBUF:
        return b"".join(_delimited(_family(family)) for family in families)
    is_open = form is Exposition.OPEN_METRICS
    lines = [line for family in families for line in _lines(family, is_open=is_open)]
    return "".join([*lines, "# EOF\n" if is_open else ""]).encode()


# Text


def _lines(family: Family, *, is_open: bool) -> Iterator[str]:
    name = PREFIX + family.name
    sample_name = f"{name}_total" if family.kind == "counter" else name
    # The name of a counter has its suffix in the older format only.
    declared = name if is_open else sample_name
    yield f"# HELP {declared} {family.help}\n# TYPE {declared} {family.kind}\n"
    for sample in family.samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
        if isinstance(sample, MetricSample):
            exemplar = _exemplar_text(sample.exemplar) if is_open and family.kind == "counter" else ""
            braced = f"{{{labels}}}" if labels else ""
            yield f"{sample_name}{braced} {_number(sample.value)}{exemplar}\n"
            continue
        for bucket in sample.classic():
            bound = "+Inf" if bucket.exponent is None else repr(2.0**bucket.exponent)
            exemplar = _exemplar_text(bucket.exemplar) if is_open else ""
            yield f'{name}_bucket{{{labels},le="{bound}"}} {bucket.cumulative}{exemplar}\n'
        yield f"{name}_sum{{{labels}}} {sample.series.seconds!r}\n"
        yield f"{name}_count{{{labels}}} {sample.series.requests}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _exemplar_text(exemplar: TraceExemplar | None) -> str:
    if exemplar is None:
        return ""
    return f' # {{trace_id="{_escaped(exemplar.trace_id)}"}} {exemplar.seconds!r} {exemplar.at_s:.3f}'


# Protobuf: message `io.prometheus.client.MetricFamily`, each field with the number of its definition.

_KINDS: Final = {"counter": 0, "gauge": 1, "histogram": 4}
_FIELD_OF_KIND: Final = {"counter": 3, "gauge": 2}


def _family(family: Family) -> bytes:
    name = PREFIX + family.name + ("_total" if family.kind == "counter" else "")
    head = _text(1, name) + _text(2, family.help) + _uint(3, _KINDS[family.kind])
    return head + b"".join(_bytes(4, _metric(sample, family.kind)) for sample in family.samples)


def _metric(sample: MetricSample | HistogramSample, kind: str) -> bytes:
    labels = _labels(1, sample.labels)
    if isinstance(sample, HistogramSample):
        return labels + _bytes(7, _histogram(sample))
    content = _double(1, sample.value)
    if kind == "counter":
        content += _exemplar(2, sample.exemplar) + _timestamp(3, sample.created_s)
    return labels + _bytes(_FIELD_OF_KIND[kind], content)


def _histogram(sample: HistogramSample) -> bytes:
    series = sample.series
    parts = [_uint(1, series.requests), _double(2, series.seconds)]
    for bucket in sample.classic():
        bound = float("inf") if bucket.exponent is None else 2.0**bucket.exponent
        content = _uint(1, bucket.cumulative) + _double(2, bound) + _exemplar(3, bucket.exemplar)
        parts.append(_bytes(3, content))
    parts += [_sint(5, SCHEMA), _double(6, 0.0), _uint(7, series.buckets.get(ZERO, 0))]
    parts += _spans(sample.native())
    parts.append(_timestamp(15, series.created_s))
    parts += [_exemplar(16, each) for each in _in_order(series.failed, series.slow)]
    return b"".join(parts)


def _spans(buckets: list[tuple[int, int]]) -> Iterator[bytes]:
    """Yield runs of adjacent buckets, then the difference of each count from the one before."""
    runs: list[list[int]] = []
    end = 0
    for index, _ in buckets:
        if runs and index == end:
            runs[-1][1] += 1
        else:
            # The first offset counts from index 0, the others from the end of the run before.
            runs.append([index - end, 1])
        end = index + 1
    for offset, length in runs:
        yield _bytes(12, _sint(1, offset) + _uint(2, length))
    before = 0
    for _, count in buckets:
        yield _sint(13, count - before)
        before = count


def _in_order(*exemplars: TraceExemplar | None) -> list[TraceExemplar]:
    """Return the exemplars that exist, by time: Prometheus refuses an older one after a newer one."""
    found = {each.trace_id: each for each in exemplars if each is not None}
    return sorted(found.values(), key=lambda each: each.at_s)


def _exemplar(field: int, exemplar: TraceExemplar | None) -> bytes:
    if exemplar is None:
        return b""
    labels = _labels(1, {"trace_id": exemplar.trace_id})
    return _bytes(field, labels + _double(2, exemplar.seconds) + _timestamp(3, exemplar.at_s))


def _labels(field: int, labels: Mapping[str, str]) -> bytes:
    return b"".join(_bytes(field, _text(1, key) + _text(2, value)) for key, value in labels.items())


def _timestamp(field: int, at_s: float) -> bytes:
    if not at_s:
        return b""
    return _bytes(field, _uint(1, int(at_s)) + _uint(2, int(at_s % 1 * 1e9)))


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _delimited(content)


def _delimited(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _uint(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _sint(field: int, value: int) -> bytes:
    return _uint(field, value << 1 if value >= 0 else (-value << 1) - 1)


_SMALL: Final = tuple(bytes([value]) for value in range(128))


def _varint(value: int) -> bytes:
    # Most numbers are tags, lengths and small counts.
    if value < len(_SMALL):
        return _SMALL[value]
    encoded = bytearray()
    while value >> 7:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
