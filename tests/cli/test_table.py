"""Tables are aligned for characters of any width, and show the deployment where it fits or differs."""

from __future__ import annotations

import click
import pytest

from receiver.cli.shell import table
from receiver.cli.shell.table import (
    CELL_COLUMNS_MAX,
    lines_of,
    lines_with_deployment,
    shown_text,
    wide_option,
)
from receiver.cli.shell.text_width import cut_to_width, text_width
from tests.support.cases import each_case

WORDS = ("web", "支付服务", "cafe\u0301", "\uff37\uff29\uff24\uff25", "한글", "")


def test_columns_are_aligned_for_wide_characters_and_combining_marks() -> None:
    rows = [(word, word, "end") for word in WORDS]

    lines = list(lines_of(("name", "number", "last"), rows, numbers=(1,)))

    starts = {text_width(line.removesuffix("end").removesuffix("last")) for line in lines}
    assert starts == {8 + 2 + 8 + 2}


@each_case("char", ["x", "支", "e\u0301"])
def test_cell_is_cut_at_its_width(char: str) -> None:
    shown = shown_text(char * 60)

    assert CELL_COLUMNS_MAX - 1 <= text_width(shown) <= CELL_COLUMNS_MAX
    assert shown.endswith("…")
    assert shown_text(char * 20) == char * 20


@each_case(
    ("deployments", "columns", "is_shown"),
    [
        pytest.param(["dpl_1", "dpl_1"], 40, True, id="fits"),
        pytest.param(["dpl_1", "dpl_1"], 17, False, id="the same, does not fit"),
        pytest.param(["dpl_1", "dpl_2"], 17, True, id="differs, so that another column is omitted"),
        pytest.param(["dpl_1", ""], 17, True, id="known for some"),
        pytest.param(["", ""], 40, False, id="not known"),
    ],
)
def test_deployment_is_a_column_if_it_fits_or_differs(
    monkeypatch: pytest.MonkeyPatch, deployments: list[str], columns: int, *, is_shown: bool
) -> None:
    monkeypatch.setattr(table, "columns_max", lambda: columns)
    rows = [("GET", "web", name) for name in deployments]

    head, *_ = lines_with_deployment(("span", "service", "deployment"), rows, optional=("service",))

    assert ("deployment" in head) == is_shown


def test_note_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(table, "columns_max", lambda: 20)

    table.print_note("not shown: service, span, deployment; --wide shows all")

    assert max(map(len, capsys.readouterr().err.splitlines())) <= 20


TRACE = "5b8efff798038103d269b633813fc60c"
HEAD = ("trace", "service", "message", "spans", "errors")
ROWS = [(TRACE, "web", "connection to the database timed out", "12", "3"), (TRACE, "cart", "", "4", "0")]


@each_case(
    ("columns", "names"),
    [
        (100, "trace service message spans errors"),
        (80, "trace message errors"),
        (60, "trace message"),
        (40, "trace"),
    ],
)
def test_narrow_terminal_omits_columns_in_order_then_shortens_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, names: str
) -> None:
    monkeypatch.setattr(table, "columns_max", lambda: columns)

    lines = list(lines_of(HEAD, ROWS, numbers=(3, 4), whole=(0,), optional=("spans", "service", "errors")))

    assert lines[0].split() == names.split()
    assert max(map(text_width, lines)) <= columns
    assert all(TRACE in line for line in lines[1:])
    omitted = ", ".join(name for name in HEAD if name not in names.split())
    note = f"not shown: {omitted}; --wide shows all" if omitted else ""
    assert capsys.readouterr().err.split() == note.split()


def test_wide_shows_all_columns_and_whole_texts_on_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    message = "x" * 200

    @click.command()
    @wide_option
    def command() -> None:
        found.extend(lines_of(("trace", "message"), [(TRACE, message)]))

    found: list[str] = []
    command.main(["--wide"], standalone_mode=False)
    command.main([], standalone_mode=False)

    assert found[:2] == [f"{'trace':32}  message", f"{TRACE}  {message}"]
    assert max(map(len, found[2:])) <= 40


@each_case(
    ("text", "width"), [("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("\uff41", 2), ("\U0001f600", 2)]
)
def test_width_counts_wide_characters_twice_and_combining_marks_not(text: str, width: int) -> None:
    assert text_width(text) == width


@each_case(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("ae\u0301i", 2, "a…"),
    ],
)
def test_cut_text_fits_its_columns(text: str, columns: int, shown: str) -> None:
    assert cut_to_width(text, columns) == shown
