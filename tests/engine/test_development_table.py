"""Table of a development version: the documented commands move its spans into a new table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.fake_clickhouse import ROOT

OLD_STORE = """
import sys
from pathlib import Path
from receiver.engine import schema
from tests.support import engines
from tests.support.fake_clickhouse import development_sources
from tests.support.segments import SegmentMaker

data = Path(sys.argv[1])
store = engines.bare(data / "store", "otel")
for statement in schema.emit(development_sources(), schema.Engine(store.version(), embedded=True), 30):
    store.command(statement.sql)
segment = SegmentMaker(data).make(0, 1, 1)
store.insert(segment.path, token="a", query_id="a")
store.close()
"""
NEW_STORE = """
import sys
from pathlib import Path
from receiver.engine import schema
from tests.support import engines
from tests.support.fake_clickhouse import schema_sources

store = engines.bare(Path(sys.argv[1]) / "store", "otel")
changes = schema.apply(store, schema_sources(), 30)
spans = store.rows("SELECT count(), sum(cityHash64(toString(tuple(*)))) FROM otel_traces")
traces = store.rows("SELECT uniqExact(TraceId) FROM otel_traces_trace_id_ts")
print(changes, spans, traces)
store.close()
"""
CHECKSUM = """
import sys
from chdb.session import Session

store = Session(sys.argv[1])
print(store.query("SELECT count(), sum(cityHash64(toString(tuple(*)))) FROM otel.otel_traces", "CSV"))
"""


def run(command: list[str], directory: Path) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documented_commands() -> str:
    section = (
        (ROOT / "docs" / "operations.md").read_text().partition("### Tables of a development version")[2]
    )
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block
    return block[1]


def test_documented_commands_move_all_spans_into_a_new_table(tmp_path: Path) -> None:
    run([sys.executable, "-c", OLD_STORE, str(tmp_path)], ROOT)

    printed = run(["bash", "-e", "-c", documented_commands().replace("cd DATA", "")], tmp_path)

    before = run([sys.executable, "-c", CHECKSUM, str(tmp_path / "store.before")], ROOT).strip().split(",")
    after = run([sys.executable, "-c", NEW_STORE, str(tmp_path)], ROOT).strip()
    assert re.findall(r"^\d+$", printed, re.MULTILINE) == ["3", "3"]
    assert after == f"[] [({before[0]}, {before[1]})] [(3,)]"
