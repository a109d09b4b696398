"""Facets: the most frequent values of fields in matching spans. A link adds its value to the filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from receiver.console.api.source import Answer
from receiver.console.ui.filter_text import all_of, without_term
from receiver.console.ui.view import View, term

VALUES_MAX = 8
SERVICES_MAX = 1_000
"""Maximum number of services whose spans are summed for the numbers of all spans and of failed spans."""
KEYS: Final = (
    "deployment",
    "project",
    "kind",
    "http.route",
    "http.response.status_code",
    "db.system.name",
    "error.type",
)
"""Fields and promoted attributes that the last facet offers. The parameter `facet` also accepts others."""


class Value(NamedTuple):
    """A value, the number of its spans, and a link that adds the value to the filter or removes it."""

    name: str
    spans: int
    link: str
    is_chosen: bool


class Facet(NamedTuple):
    """The most frequent values of a field or attribute."""

    name: str
    values: Sequence[Value]
    is_cut: bool


class Facets(NamedTuple):
    """The facets of a filter, and the number of its spans."""

    facets: Sequence[Facet]
    spans: int
    errors: int
    key: str


async def facets(view: View, text: str) -> Facets:
    """Return the facets of the spans that match a filter. Sends three queries."""
    key = view.query.get("facet") or KEYS[0]
    filters = view.filter(text)
    services = await view.ask("red", by="service", spans="all", filter=filters, limit=str(SERVICES_MAX))
    spans = sum(row["spans"] for row in services.rows)
    errors = sum(row["errors"] for row in services.rows)
    all_facets = [_facet(view, text, "service", services)]
    statuses = [("error", "status=error", errors), ("not error", "-status=error", spans - errors)]
    values = [_value(view, text, name, added, count) for name, added, count in statuses if count]
    all_facets.append(Facet("status", values, is_cut=False))
    for name in ("operation", key):
        answer = await view.ask("red", by=name, spans="all", filter=filters, limit=str(VALUES_MAX + 1))
        all_facets.append(_facet(view, text, name, answer))
    return Facets(all_facets, spans, errors, key)


def _facet(view: View, text: str, field: str, answer: Answer) -> Facet:
    values = [
        _value(view, text, row["group"], term(field, row["group"]), row["spans"])
        for row in answer.rows[:VALUES_MAX]
    ]
    return Facet(field, values, is_cut=len(answer.rows) > VALUES_MAX)


def _value(view: View, text: str, name: str, added: str, spans: int) -> Value:
    shorter = without_term(text, added)
    link_filter = all_of(text, added) if shorter is None else shorter
    link = view.link("/search", filter=link_filter, facet=view.query.get("facet", ""))
    return Value(name, spans, link, shorter is not None)
