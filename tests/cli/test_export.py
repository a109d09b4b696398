"""`trace-drain export` writes whole files and overwrites nothing."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.console.queries.export import CONTENT_TYPES, ExportFormat
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans
from tests.support.fake_api import ApiHandler, receiver_with

STORED = 30
EMPTY_NOTE = "no span of the last 1h matches; use --since TIME to search further back\n"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with spans that started within a minute."""
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
    with stored_spans(engine_dir, rows) as directory:
        yield directory


@each_case("form", ["jsonl", "csv", "otlp", "parquet"])
def test_export_writes_a_whole_file_and_standard_output_gets_the_same_bytes(
    data_dir: str, tmp_path: Path, form: str
) -> None:
    arguments = ("export", "service=exported", "--data", data_dir, "-o")
    path = tmp_path / form / f"spans.{form}"
    path.parent.mkdir()
    # As a killed process leaves it.
    path.with_name(f"{path.name}.partial").write_text("x" * 1_000_000)
    result = run(*arguments, str(path))
    printed = run(*arguments, "-", "--format", form)

    assert result.exit_code == 0, result.output
    assert names_in(path.parent) == [path.name]
    content = path.read_bytes()
    assert printed.stdout_bytes == content
    if form == "parquet":
        assert (content[:4], content[-4:]) == (b"PAR1", b"PAR1")
    elif form == "csv":
        table = list(csv.DictReader(content.decode().splitlines()))
        assert {row["SpanName"] for row in table} == {"'=HYPERLINK(1)"}
        assert len(table) == STORED
    else:
        assert len(set(re.findall(rb'"[sS]panId":"([0-9a-f]{16})"', content))) == STORED


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


@each_case(
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


def test_existing_file_and_missing_directory_are_refused(data_dir: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("mine")

    existing = run("export", "--data", data_dir, "-o", str(tmp_path / "x.csv"))
    missing = run("export", "--data", data_dir, "-o", str(tmp_path / "absent" / "x.csv"))

    assert (existing.exit_code, missing.exit_code) == (2, 2)
    assert "exists; expected the name of a new file" in existing.stderr
    assert (tmp_path / "x.csv").read_text() == "mine"
    assert missing.stderr.startswith(f"trace-drain: no directory '{tmp_path}/absent'; expected ")
    assert "partial" not in missing.stderr


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

    with receiver_with(Handler, data) as directory:
        result = run("export", "--data", directory, "--since", "2026-01-01", "-o", str(output))

    assert result.exit_code == 1
    assert message in result.stderr
    assert names_in(tmp_path) == ["data"]
