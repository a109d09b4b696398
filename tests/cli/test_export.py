"""`trace-drain export` writes whole files, continues after an interruption, and overwrites nothing."""

from __future__ import annotations

import csv
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.cli.console.export import blocks
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


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


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
    """API of a receiver with a list of spans, which ends an answer after some of them."""

    rows: ClassVar[list[dict[str, Any]]] = []
    rows_max: ClassVar[int] = 0
    queries: ClassVar[list[dict[str, str]]] = []

    def lines_for(self, query: dict[str, str]) -> list[str]:
        self.queries.append(query)
        since = query["since"].replace("T", " ").removesuffix("+00:00")
        matching = [row for row in self.rows if row["Timestamp"] >= since]
        lines = [json.dumps(row) for row in matching[: self.rows_max]]
        if len(matching) <= self.rows_max:
            lines.append(json.dumps({"end": {"count": len(matching)}}))
        return lines


@pytest.fixture
def receiver_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the data directory of a receiver whose API is `Handler`."""
    (tmp_path / "data").mkdir()
    rng = random.Random(3)
    rows = [
        {"Timestamp": f"2026-01-31 10:00:00.{rng.randrange(50) * 7_001:09d}", "Name": f"span {n}"}
        for n in range(400)
    ]
    monkeypatch.setattr(Handler, "rows", sorted(rows, key=lambda row: row["Timestamp"]))
    monkeypatch.setattr(Handler, "queries", [])
    monkeypatch.setattr(blocks, "__defaults__", (20,))
    with receiver_with(Handler, tmp_path / "data") as directory:
        yield directory


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_interrupted_export_continues_without_loss_and_without_repetition(
    receiver_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Handler, "rows_max", 90)
    arguments = ("export", "--data", receiver_dir, "--since", "2026-01-01", "-o", str(tmp_path / name))

    results = [run(*arguments)]
    while results[-1].exit_code and len(results) < 20:
        assert results[-1].exit_code == 1
        assert not (tmp_path / name).exists()
        with (tmp_path / f"{name}.partial").open("ab") as partial:
            partial.write(b"bytes after the last sync" * 10_000)
        results.append(run(*arguments))

    text = (tmp_path / name).read_text()
    lines = text.splitlines()[1 if name == "x.csv" else 0 :]
    assert [re.findall(r"span \d+", line)[0] for line in lines] == [row["Name"] for row in Handler.rows]
    assert 400 / 90 < len(results) < 20
    assert "the same command continues after them" in results[0].stderr
    assert results[1].stderr.startswith("continuing after ")
    assert names_in(tmp_path) == ["data", name]
    assert len({query["until"] for query in Handler.queries}) == 1


def test_partial_file_of_other_parameters_is_not_continued(
    receiver_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "rows_max", 90)
    arguments = ("export", "--data", receiver_dir, "--since", "2026-01-01", "-o", str(tmp_path / "x.csv"))
    assert run(*arguments).exit_code == 1
    before = (tmp_path / "x.csv.partial").read_bytes()

    result = run(*arguments, "service=other")

    assert result.exit_code == 2
    assert "belongs to another export" in result.stderr
    assert (tmp_path / "x.csv.partial").read_bytes() == before


def test_incomplete_parquet_answer_gives_no_file(
    receiver_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "rows_max", 90)
    monkeypatch.setattr(Handler, "content_type", CONTENT_TYPES[ExportFormat.PARQUET])

    result = run("export", "--data", receiver_dir, "--since", "2026-01-01", "-o", str(tmp_path / "x.parquet"))

    assert result.exit_code == 1
    assert "does not answer completely" in result.stderr
    assert names_in(tmp_path) == ["data"]
