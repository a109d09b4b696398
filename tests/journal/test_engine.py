"""Tests of a segment as a file: ClickHouse and the standard tools read it despite our frames."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from receiver import transcode
from receiver.durable.files import DISK
from receiver.journal.segments import Journal, SegmentFile
from receiver.model import ContentKind, Delivery
from receiver.settings import Settings
from tests.support.journal import appender, limits
from tests.support.segments import DIGEST_KEY

SPANS_EACH = 30
IDS = 20
"""Number of distinct attribute values; the other spans of a record repeat them."""
READ = """
import sys
from chdb.session import Session

columns, *segments = sys.argv[1:]
engine = Session()
engine.query(f"CREATE TABLE spans ({columns}) ENGINE = Memory")
for segment in segments:
    codec, _, path = segment.partition("=")
    engine.query(f"INSERT INTO spans FROM INFILE '{path}' COMPRESSION '{codec}' FORMAT Native")
columns = "SpanName, SegmentEpoch, SegmentSeq, SpanAttributes['id'] AS Id"
print(engine.query(f"SELECT {columns} FROM spans ORDER BY SpanName", "JSONEachRow"))
"""
"""Program that runs in its own process, because a process that has used the engine must not fork."""


def id_of(number: int) -> str:
    """Return the attribute of a span; repeated texts may occur twice in the core's dictionary."""
    return f"id {number % IDS}"


def body(prefix: str) -> bytes:
    """Return a request with `SPANS_EACH` spans."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(SPANS_EACH):
        now_ns = time.time_ns()
        span = spans.add(
            trace_id=bytes([number + 1]) * 16,
            span_id=bytes([number + 1]) * 8,
            name=f"{prefix}{number:02}",
            start_time_unix_nano=now_ns,
            end_time_unix_nano=now_ns + 1000,
        )
        span.attributes.add(key="id").value.string_value = id_of(number)
    return request.SerializeToString()


def make_segment(tmp_path: Path, codec: str, *prefixes: str) -> SegmentFile:
    """Journal a record for each prefix with the real core, and seal the segment."""
    policy = transcode.policy(Settings(journal=limits(codec=codec)))
    journal = appender(DISK, tmp_path, codec=codec)
    for prefix in prefixes:
        segment = journal.choose()
        delivery = Delivery(
            "d", body(prefix), ContentKind.PROTOBUF, (), time.time_ns(), strict=False, body_bytes_max=1 << 20
        )
        committed = transcode.commit(policy, [delivery], segment, DIGEST_KEY)
        journal.append(segment, committed.record, committed.rows)
    journal.close()
    [segment_file] = Journal(tmp_path).sealed()
    return segment_file


def test_engine_reads_sealed_segments_of_both_codecs_unchanged(tmp_path: Path) -> None:
    prefixes_of = {"lz4": "ab", "zstd": "cd"}
    files = {codec: make_segment(tmp_path / codec, codec, *names) for codec, names in prefixes_of.items()}

    columns = ", ".join(f"`{name}` {kind}" for name, kind in transcode.COLUMNS)
    segments = [f"{codec}={file.path}" for codec, file in files.items()]
    command = [sys.executable, "-c", READ, columns, *segments]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout

    rows = [json.loads(line) for line in output.splitlines() if line]
    assert [file.path.name.partition(".")[2] for file in files.values()] == ["native.lz4", "native.zst"]
    assert [file.damage(file.scan()) for file in files.values()] == [[], []]
    assert [
        (row["SpanName"], row["Id"], int(row["SegmentEpoch"]), int(row["SegmentSeq"])) for row in rows
    ] == [
        (f"{prefix}{number:02}", id_of(number), files[codec].id.epoch, files[codec].id.seq)
        for codec, prefixes in prefixes_of.items()
        for prefix in prefixes
        for number in range(SPANS_EACH)
    ]


@pytest.mark.parametrize("tool", ["lz4", "zstd"])
def test_standard_tool_skips_our_frames(tmp_path: Path, tool: str) -> None:
    command = shutil.which(tool)
    if command is None:
        pytest.skip(f"the {tool} command is not installed; the test above uses the engine")
    segment_file = make_segment(tmp_path, tool, "a", "b")

    plain = subprocess.run([command, "-dc", str(segment_file.path)], capture_output=True, check=True).stdout

    assert plain.count(b"\x08SpanName") == 2
    assert b"TDRJ" not in plain
