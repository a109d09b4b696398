"""Order of the traces of a search, and attributes as columns of its answer: parameters and expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from receiver.console.queries.filters.trace_sql import ROOT_FIRST, trace_compose
from receiver.console.queries.group_key import GroupKey, parse_group_key
from receiver.engine.sql_text import Sql, compose, joined
from receiver.engine.store import Store
from receiver.errors import MalformedBody

COLUMNS_MAX = 12
_ORDERS: Final[Mapping[str, Sql]] = {
    "started": Sql("min(Timestamp)"),
    "duration": trace_compose("{trace_duration}"),
    "spans": trace_compose("{trace_spans}"),
    "errors": trace_compose("{trace_errors}"),
    "root": trace_compose("({trace_service}, {trace_name})"),
}
"""Order of an answer → its expression. All other orders are by a field or an attribute."""
NEWEST: Final = ("", "newest", "-started")
"""Values of the parameter `sort` for the order by the newest matching span."""


class Order(NamedTuple):
    """Order of the traces of an answer: by a measure of `_ORDERS`, or else by a field or attribute."""

    name: str
    is_descending: bool
    key: GroupKey | None = None


def parse_order(text: str) -> Order | None:
    """Parse an order, such as `-duration`; `None`: the newest matching span first."""
    if text in NEWEST:
        return None
    name = text.removeprefix("-")
    return Order(name, text != name, None if name in _ORDERS else parse_group_key(name, "sort", _ORDERS))


_ALWAYS: Final = frozenset(("started", "trace", "root", "length", "duration", "spans", "errors"))
"""Columns of the search page that every answer has."""


def parse_columns(text: str) -> dict[str, GroupKey]:
    """Parse the attributes of an answer, separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = [name for name in names if name not in _ALWAYS]
    if len(names) > COLUMNS_MAX:
        raise MalformedBody(f"columns: expected at most {COLUMNS_MAX} attributes", field="columns")
    return {name: parse_group_key(name, "columns") for name in names}


def order_expression(store: Store, order: Order) -> tuple[Sql, dict[str, str]]:
    """Return the expression by which traces are sorted, and its parameters."""
    direction = Sql("DESC") if order.is_descending else Sql("ASC")
    if order.key is None:
        return compose("{value} {direction}", value=_ORDERS[order.name], direction=direction), {}
    value, is_present = _value(store, order.key)
    # Numbers by their value, then texts, then traces without the attribute.
    by = compose(
        "NOT max({is_present}), isNull(toFloat64OrNull({value})), toFloat64OrNull({value}) {direction}, "
        "{value} {direction}",
        is_present=is_present,
        value=value,
        direction=direction,
    )
    return by, order.key.parameters


def _value(store: Store, key: GroupKey) -> tuple[Sql, Sql]:
    """Return the value of a trace, and whether a span has it. The root is first, then the earliest span."""
    found = key.expressions(store)
    value = compose(
        "argMinIf({value}, {root_first}, {is_present})",
        value=found.value_sql,
        root_first=ROOT_FIRST,
        is_present=found.is_present_sql,
    )
    return value, found.is_present_sql


def attributes_of_traces(store: Store, columns: Mapping[str, GroupKey]) -> tuple[Sql, dict[str, str]]:
    """Return the column with the attributes of an answer, and its parameters."""
    if not columns:
        return Sql(""), {}
    pairs, parameters = [], dict[str, str]()
    for number, (name, key) in enumerate(columns.items()):
        named = key._replace(parameter=f"column_{number}")
        value, _ = _value(store, named)
        shown = compose("{{prefix}_{number}:String}", prefix=Sql("name"), number=number)
        parameters |= {**named.parameters, f"name_{number}": name}
        pairs.append(compose("{shown}, {value}", shown=shown, value=value))
    return compose(",\n    map({pairs}) AS columns", pairs=joined(", ", pairs)), parameters
