"""`trace-drain export` writes whole files and overwrites nothing."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.console.queries.export import CONTENT_TYPES, ExportFormat
from receiver.engine import schema
from receiver.engine.opening import open_store
from receiver.settings import Settings
from tests.support.fake_api import ApiHandler, receiver_with
from tests.support.fake_clickhouse import schema_sources

STORED = 30
EMPTY_NOTE = "no span of the last 1h matches; use --since TIME to search further back\n"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with spans that started within a minute."""
    settings = Settings(data_dir=str(engine_dir.parent))
    store = open_store(settings, disk_free_min=lambda: 1)
    schema.apply(store, schema_sources(), 30)
    rows = [
        {
            "Timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() - 60 - number)),
            "TraceId": f"{number:032x}",
            "SpanId": f"{number:016x}",
            "ServiceName": "exported",
            "SpanName": "=HYPERLINK(1)",
        }
        for number in range(STORED)
    ]
    store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, rows)))
    store.close()
    yield settings.data_dir
    store = open_store(settings, disk_free_min=lambda: 1)
    store.command("DELETE FROM otel_traces WHERE ServiceName = 'exported'")  # other tests count all rows
    store.close()


@pytest.mark.parametrize("name", ["spans.jsonl", "spans.csv", "spans.otlp", "spans.parquet"])
def test_export_writes_a_whole_file_in_the_format_of_its_ending(
    data_dir: str, tmp_path: Path, name: str
) -> None:
    result = run("export", "service=exported", "--data", data_dir, "-o", str(tmp_path / name))

    assert result.exit_code == 0, result.output
    assert names_in(tmp_path) == [name]
    content = (tmp_path / name).read_bytes()
    if name.endswith("parquet"):
        assert (content[:4], content[-4:]) == (b"PAR1", b"PAR1")
    elif name.endswith("csv"):
        table = list(csv.DictReader(content.decode().splitlines()))
        assert {row["SpanName"] for row in table} == {"'=HYPERLINK(1)"}
        assert len(table) == STORED
    else:
        assert len(set(re.findall(rb'"[sS]panId":"([0-9a-f]{16})"', content))) == STORED


@pytest.mark.parametrize("form", ["jsonl", "csv", "otlp", "parquet"])
def test_standard_output_gets_the_bytes_of_the_file(data_dir: str, tmp_path: Path, form: str) -> None:
    arguments = ("export", "service=exported", "--data", data_dir, "--format", form, "-o")

    printed = run(*arguments, "-")

    assert run(*arguments, str(tmp_path / "file")).exit_code == 0
    assert printed.stdout_bytes == (tmp_path / "file").read_bytes()


def test_export_of_no_span_is_an_empty_file(data_dir: str, tmp_path: Path) -> None:
    result = run("export", "service=absent", "--data", data_dir, "-o", str(tmp_path / "x.jsonl"))

    assert (result.exit_code, result.stderr) == (0, f"{tmp_path}/x.jsonl: 0 spans\n{EMPTY_NOTE}")
    assert (tmp_path / "x.jsonl").read_bytes() == b""


def test_csv_of_no_span_has_the_line_of_names(data_dir: str, tmp_path: Path) -> None:
    result = run("export", "service=absent", "--data", data_dir, "-o", str(tmp_path / "x.csv"))
    printed = run("export", "service=absent", "--data", data_dir, "--format", "csv", "-o", "-")
    run("export", "service=exported", "--data", data_dir, "-o", str(tmp_path / "some.csv"))

    assert (result.exit_code, printed.exit_code) == (0, 0)
    head = (tmp_path / "some.csv").read_text().splitlines(keepends=True)[0]
    assert (tmp_path / "x.csv").read_text() == printed.stdout == head
    assert printed.stderr == EMPTY_NOTE
    assert names_in(tmp_path) == ["some.csv", "x.csv"]


def test_missing_directory_of_the_file_is_named(data_dir: str, tmp_path: Path) -> None:
    result = run("export", "--data", data_dir, "-o", str(tmp_path / "absent" / "x.csv"))

    assert result.exit_code == 2
    assert result.stderr.startswith(f"trace-drain: no directory '{tmp_path}/absent'; expected ")
    assert "partial" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sevice=x"], "filter, column 1: unknown field; did you mean 'service'?"),
        (['name=~"("'], "filter, column 7: the regular expression is not valid"),
        (["--since", "soon"], "since is neither an age nor an instant"),
        (["--forma", "csv"], "No such option"),
    ],
)
def test_wrong_argument_leaves_no_file(
    data_dir: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = run("export", *arguments, "--data", data_dir, "-o", str(tmp_path / "x.csv"))

    assert result.exit_code == 2
    assert message in result.stderr
    assert names_in(tmp_path) == []


def test_existing_file_is_not_overwritten(data_dir: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("mine")

    result = run("export", "--data", data_dir, "-o", str(tmp_path / "x.csv"))

    assert result.exit_code == 2
    assert "exists; expected the name of a new file" in result.stderr
    assert (tmp_path / "x.csv").read_text() == "mine"


class Handler(ApiHandler):
    """API of a receiver whose answer ends before its last line."""

    def lines_for(self, query: dict[str, str]) -> list[str]:
        assert query["since"] == "2026-01-01"
        return ['{"Timestamp": "2026-01-31 10:00:00.000000000"}'] * 2


@pytest.mark.parametrize(
    ("form", "message"),
    [("jsonl", "ended after 2 lines without the last line"), ("parquet", "does not answer completely")],
)
def test_incomplete_answer_gives_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, message: str
) -> None:
    monkeypatch.setattr(Handler, "content_type", CONTENT_TYPES[ExportFormat(form)])
    data, output = tmp_path / "data", tmp_path / f"x.{form}"
    data.mkdir()
    # A killed process leaves its spans.
    (tmp_path / f"x.{form}.partial").write_text("x" * 1_000)

    with receiver_with(Handler, data) as directory:
        result = run("export", "--data", directory, "--since", "2026-01-01", "-o", str(output))

    assert result.exit_code == 1
    assert message in result.stderr
    assert names_in(tmp_path) == ["data"]
