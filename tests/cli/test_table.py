"""Tables are aligned for characters of any width, and show the deployment where it fits or differs."""

from __future__ import annotations

import pytest

from receiver.cli.shell import table
from receiver.cli.shell.table import CELL_COLUMNS_MAX, lines_of, lines_with_deployment, shown_text
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
        pytest.param(["dpl_1", "dpl_1"], 12, False, id="does not fit"),
        pytest.param(["dpl_1", "dpl_2"], 12, True, id="differs"),
        pytest.param(["dpl_1", ""], 12, True, id="known for some"),
        pytest.param(["", ""], 40, False, id="not known"),
    ],
)
def test_deployment_is_a_column_if_it_fits_or_differs(
    monkeypatch: pytest.MonkeyPatch, deployments: list[str], columns: int, *, is_shown: bool
) -> None:
    monkeypatch.setattr(table, "columns_max", lambda: columns)

    head, *lines = lines_with_deployment(("span", "deployment"), [("GET", name) for name in deployments])

    assert head == ("span  deployment" if is_shown else "span")
    assert lines == [f"GET   {name}".rstrip() if is_shown else "GET" for name in deployments]


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
