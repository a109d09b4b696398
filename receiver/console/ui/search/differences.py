"""Differences of a selection: values that are more or less frequent in its spans than in the other spans."""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.console.queries.comparison.shifts import sample_text
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.queries.filters.filter_values import attribute_text
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.view import View, term
from receiver.errors import InvalidFilter, MalformedBody

DIFFERENCES_MAX: Final = 12
"""Maximum number of values on the page, those with the strongest evidence."""


class Difference(NamedTuple):
    """A value with its share of the selection and its share of the other spans."""

    name: str
    selection_share: float
    rest_share: float
    link: str


class Differences(NamedTuple):
    """Differences between a selection and the other spans, and the number of sampled spans."""

    found: list[Difference]
    sample: str
    """Empty if all spans were compared, or no value differs."""


def check(selection: str) -> None:
    """Raise `InvalidFilter` for a selection that is not a filter of spans."""
    try:
        parse_filter(selection)
    except InvalidFilter as error:
        raise error.named("selection") from error


async def differences(view: View, text: str, selection: str) -> Differences | None:
    """Return the differences between a selection and the other spans; `None` if a side has no spans."""
    selected, against = view.filter(text, selection), view.filter(text)
    try:
        answer = await view.ask("shifts", filter=selected, against=against, limit=str(DIFFERENCES_MAX))
    except MalformedBody:
        # A side has no span.
        return None
    values = []
    for row in answer.rows:
        is_field = row["scope"] == "intrinsic"
        field = row["key"] if is_field else attribute_text(row["scope"], row["key"])
        values.append(
            Difference(
                f"{row['key']}={row['value']}",
                row["selection_share"],
                row["rest_share"],
                view.link("/search", filter=all_of(text, term(field, row["value"])), selection=selection),
            )
        )
    # The same in every row.
    samples = [sample_text(row, "selected spans", "other matching spans") for row in answer.rows[:1]]
    return Differences(values, "".join(samples))
