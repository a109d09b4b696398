"""`trace-drain sql` prints the rows of a statement, from the store itself or from a running receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from tests.support.cases import each_case
from tests.support.commands import stored_spans
from tests.support.fake_api import ApiHandler, receiver_with

NUMBERS = "SELECT number AS n, concat('=', toString(number)) AS t FROM numbers(3)"


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["sql", *arguments], input=text)


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with a store without spans."""
    with stored_spans(engine_dir, []) as directory:
        yield directory


def test_answer_is_printed_in_each_format(data_dir: str) -> None:
    table = run(NUMBERS, "--data", data_dir)
    lines = run(NUMBERS, "--data", data_dir, "--format", "jsonl")
    csv = run("-", "--data", data_dir, "--format", "csv", text=f"{NUMBERS};\n")

    assert (table.exit_code, lines.exit_code, csv.exit_code) == (0, 0, 0), table.output
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["n", "t"],
        ["0", "=0"],
        ["1", "=1"],
        ["2", "=2"],
    ]
    assert [json.loads(line) for line in lines.stdout.splitlines()][2] == {"n": 2, "t": "=2"}
    assert csv.stdout.splitlines() == ["n,t", "0,'=0", "1,'=1", "2,'=2"]


def test_answer_that_is_cut_is_reported(data_dir: str) -> None:
    cut = run(NUMBERS, "--data", data_dir, "--limit", "2")
    whole = run(NUMBERS, "--data", data_dir, "--limit", "3")

    assert cut.stderr == "the first 2 lines; --limit N prints up to 100000\n"
    assert whole.stderr == ""


@each_case(
    ("statement", "message"),
    [
        ("SELECT file('/etc/passwd')", "the function file is not allowed"),
        ("SELECT nosuch", "Unknown expression identifier `nosuch`"),
        ("", "query is missing"),
    ],
)
def test_statement_that_is_refused_is_a_mistake_of_the_operator(
    data_dir: str, statement: str, message: str
) -> None:
    result = run(statement, "--data", data_dir)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


class SqlHandler(ApiHandler):
    """Receiver that keeps the bodies of its requests."""

    bodies: ClassVar[list[dict[str, str]]] = []

    def lines_for(self, query: dict[str, str]) -> list[str]:
        assert query == {}
        return ['{"n":1}', '{"end":{"count":1,"cut":true}}']

    def do_POST(self) -> None:  # noqa: N802 - the standard library's name
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()


def test_running_receiver_gets_the_statement_in_the_body(tmp_path: Path) -> None:
    statement = f"SELECT {'1 + ' * 3_000} 1 AS n"
    with receiver_with(SqlHandler, tmp_path) as directory:
        result = run(statement, "--data", directory, "--limit", "1", "--format", "json")

    assert (result.exit_code, result.stdout) == (0, '{"n":1}\n')
    assert SqlHandler.bodies == [{"query": statement, "limit": "1"}]
    assert "the first 1 line" in result.stderr
