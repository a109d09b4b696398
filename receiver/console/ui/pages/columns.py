"""Columns and order of a list on a page, as parameters of its URL.

columns=started,root,http.route     the columns in their order; without it, those of `DEFAULT`
sort=duration, sort=-duration       the smallest or the largest first
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from receiver.console.api.source import Row
from receiver.console.queries.group_key import parse_group_key
from receiver.console.queries.traces.trace_columns import COLUMNS_MAX
from receiver.console.ui.view import View
from receiver.errors import MalformedBody

DEFAULT: Final = ("started", "root", "length", "duration", "spans", "errors", "deployment", "trace")
"""Columns of the list of traces by default. All other columns are fields and attributes."""
_TEXTS: Final = ("root", "deployment")
_UNSORTED: Final = ("length", "trace")
_TIMES: Final = ("started", "first", "last")


class ColumnHead(NamedTuple):
    """Head of a column: a link that sorts the list."""

    name: str
    link: str
    """URL of the list in the order of this column; empty if the column has no order."""
    sorted: str = ""
    """Value of `aria-sort`; empty if the list is in another order."""
    is_number: bool = False


class Column(NamedTuple):
    """A column of the list of traces, and the URLs that change the columns."""

    head: ColumnHead
    is_attribute: bool
    earlier: str
    later: str
    removed: str


def head(view: View, name: str, order: str, *, is_number: bool) -> ColumnHead:
    """Return the head of a column. Its link reverses the order, or begins with the largest or the newest."""
    first, second = (f"-{name}", name) if is_number or name in _TIMES else (name, f"-{name}")
    link = view.changed(sort=second if order == first else first)
    state = {name: "ascending", f"-{name}": "descending"}.get(order, "")
    return ColumnHead(name, link, state, is_number)


def names_of(view: View) -> tuple[str, ...]:
    """Return the names of the columns of a search. Raises `MalformedBody`."""
    return _checked(view.query.get("columns", "").split(",")) or DEFAULT


def _checked(texts: Sequence[str]) -> tuple[str, ...]:
    names = tuple(filter(None, dict.fromkeys(each.strip() for each in texts)))
    own = [name for name in names if name not in DEFAULT or name == "deployment"]
    if len(own) > COLUMNS_MAX:
        raise MalformedBody(f"columns: expected at most {COLUMNS_MAX} attributes", field="columns")
    for name in own:
        parse_group_key(name, "columns")
    return names


def attributes_of(names: Collection[str]) -> list[str]:
    """Return the columns that are no columns of every trace."""
    return [name for name in names if name not in DEFAULT]


def columns_of(view: View, names: tuple[str, ...], order: str) -> list[Column]:
    """Return the columns of the list of traces."""
    return [_column(view, names, index, order) for index in range(len(names))]


def addable(view: View, names: tuple[str, ...], offered: Sequence[str]) -> dict[str, str]:
    """Return the name of each column that can be added, and its URL."""
    absent = [name for name in dict.fromkeys((*DEFAULT, *offered)) if name not in names]
    return {name: _link(view, (*names, name)) for name in absent}


def added(view: View) -> str:
    """Return the URL of the list with the column `add` of a form; empty without one, or if it is refused."""
    name, names = view.query.get("add", "").strip(), names_of(view)
    try:
        return _link(view, _checked((*names, *name.split(",")))) if name else ""
    except MalformedBody as error:
        # The links of the page are those of the list without it.
        view.query = {key: value for key, value in view.query.items() if key != "add"}
        view.add_error = str(error)
        return ""


def _column(view: View, names: tuple[str, ...], index: int, order: str) -> Column:
    name = names[index]
    is_number = name in DEFAULT and name not in (*_TEXTS, *_UNSORTED, "started")
    found = ColumnHead(name, "") if name in _UNSORTED else head(view, name, order, is_number=is_number)
    before, after = names[:index], names[index + 1 :]
    return Column(
        found,
        is_attribute=name not in DEFAULT,
        earlier=_link(view, (*before[:-1], name, *before[-1:], *after)) if before else "",
        later=_link(view, (*before, *after[:1], name, *after[1:])) if after else "",
        removed=_link(view, (*before, *after)) if before or after else "",
    )


def _link(view: View, names: Sequence[str]) -> str:
    text = "" if tuple(names) == DEFAULT else ",".join(names)
    return view.changed(columns=text, add="")


Measure = Callable[[Row], Any]


def sorted_rows(
    view: View, rows: list[Row], measures: Mapping[str, Measure], texts: Collection[str]
) -> tuple[list[Row], dict[str, ColumnHead]]:
    """Return the rows of a page's list in the order of the parameter `sort`, and the heads by column.

    `measures`: name of a column → its value in a row. `texts`: columns that are neither numbers nor times.
    """
    order = view.one_of("sort", [*measures, *(f"-{name}" for name in measures)], "")
    heads = {name: head(view, name, order, is_number=name not in (*texts, *_TIMES)) for name in measures}
    if not order:
        return rows, heads
    measure = measures[order.removeprefix("-")]
    # Rows without the value are last in both orders.
    known = [row for row in rows if measure(row) is not None]
    known.sort(key=measure, reverse=order.startswith("-"))
    return [*known, *(row for row in rows if measure(row) is None)], heads
