"""Claims about a segment as a file: the engine and stock tools read it by its name, our frames and all."""

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
from receiver.journal.files import DISK
from receiver.journal.segments import Journal, SegmentFile
from receiver.model import ContentKind, Delivery
from receiver.settings import Settings
from tests.journal_support import appender, limits
from tests.segments import DIGEST_KEY

SPANS_EACH = 30
IDS = 20
"""After so many values that were all new, the rest of a record's spans repeat them."""
READ = """
import sys
from chdb.session import Session

path, codec, columns = sys.argv[1:]
engine = Session()
engine.query(f"CREATE TABLE spans ({columns}) ENGINE = Memory")
engine.query(f"INSERT INTO spans FROM INFILE '{path}' COMPRESSION '{codec}' FORMAT Native")
columns = "SpanName, SegmentEpoch, SegmentSeq, SpanAttributes['id'] AS Id"
print(engine.query(f"SELECT {columns} FROM spans ORDER BY SpanName", "JSONEachRow"))
"""
"""Runs in a process of its own: one that has used the engine must never fork again."""


def id_of(number: int) -> str:
    """Tell the attribute of a record's span: the core may give a text that repeats late two numbers."""
    return f"id {number % IDS}"


def body(prefix: str) -> bytes:
    """Build a request of a few spans."""
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


def sealed(tmp_path: Path, codec: str, *prefixes: str) -> SegmentFile:
    """Journal one record for each prefix, through the real core, and seal."""
    policy = transcode.policy(Settings(journal=limits(codec=codec)))
    journal = appender(DISK, tmp_path, codec=codec)
    for prefix in prefixes:
        segment = journal.choose()
        delivery = Delivery(
            "d", body(prefix), ContentKind.PROTOBUF, (), time.time_ns(), strict=False, body_bytes_max=1 << 20
        )
        done = transcode.commit(policy, [delivery], segment, DIGEST_KEY)
        journal.append(segment, done.record, done.rows)
    journal.close()
    [found] = Journal(tmp_path).sealed()
    return found


@pytest.mark.parametrize(("codec", "suffix"), [("lz4", ".native.lz4"), ("zstd", ".native.zst")])
def test_the_engine_reads_a_sealed_segment_as_it_lies_there(tmp_path: Path, codec: str, suffix: str) -> None:
    found = sealed(tmp_path, codec, "a", "b")

    columns = ", ".join(f"`{name}` {kind}" for name, kind in transcode.COLUMNS)
    command = [sys.executable, "-c", READ, str(found.path), codec, columns]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout

    rows = [json.loads(line) for line in said.splitlines() if line]
    assert found.path.name.endswith(suffix)
    assert found.damage(found.scan()) == []
    assert [(row["SpanName"], row["Id"]) for row in rows] == [
        (f"{prefix}{number:02}", id_of(number)) for prefix in "ab" for number in range(SPANS_EACH)
    ]
    assert {(int(row["SegmentEpoch"]), int(row["SegmentSeq"])) for row in rows} == {
        (found.id.epoch, found.id.seq)
    }


@pytest.mark.parametrize("tool", ["lz4", "zstd"])
def test_the_stock_tool_skips_our_frames(tmp_path: Path, tool: str) -> None:
    command = shutil.which(tool)
    if command is None:
        pytest.skip(f"the {tool} command is not installed; the engine itself is asked above")
    found = sealed(tmp_path, tool, "a", "b")

    plain = subprocess.run([command, "-dc", str(found.path)], capture_output=True, check=True).stdout

    assert plain.count(b"\x08SpanName") == 2
    assert b"TDRJ" not in plain
