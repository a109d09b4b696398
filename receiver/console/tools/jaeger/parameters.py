"""Parameters of Jaeger's searches, in both of their spellings, as searches of the query package.

The older spelling has microseconds since 1970, and `tags`; API v3 has RFC 3339, and `query.attributes`.
Jaeger names some fields of spans like attributes: `error`, `span.kind`, `otel.status_code`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import orjson

from receiver.console.queries.filters import filter as filters
from receiver.console.queries.filters.filter_values import (
    JSON_CHARACTERS_MAX,
    TERMS_MAX,
    Place,
    Value,
    check_text,
    comparison,
)
from receiver.console.queries.search import SearchQuery
from receiver.console.tools.common import TRACES_MAX, instant_s, limit_of, time_range
from receiver.errors import InvalidFilter, MalformedBody
from receiver.time_range import TimeRange, parse_instant

SEARCHED_TRACES_DEFAULT: Final = 100
NAMES_RANGE_S: Final = 7 * 86_400.0
"""How far back the names of services and operations are looked up: those requests have no time range."""
EDGES_RANGE_S: Final = 86_400.0
_FIELDS: Final[Mapping[str, str]] = {
    "span.kind": "kind",
    "otel.status_code": "status",
    "otel.status_description": "status-message",
    "otel.scope.name": "scope:name",
    "otel.scope.version": "scope:version",
    "otel.library.name": "scope:name",
    "otel.library.version": "scope:version",
}
"""Tag of Jaeger's spans that is a field here → the field."""
_UPPER = re.compile("[A-Z]")


class Spelling(NamedTuple):
    """Names of the parameters of a search, and how a time is written."""

    service: str
    operation: str
    tags: str
    duration_min: str
    duration_max: str
    limit: str
    begin: str
    end: str
    at_s: Callable[[Mapping[str, str], str], float | None]


def _microseconds(query: Mapping[str, str], name: str) -> float | None:
    return instant_s(query, name, 1_000_000)


def _rfc3339(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name, "")
    at_s = parse_instant(text)
    if text and at_s is None:
        raise MalformedBody(f"{name}: expected an instant, like 2026-01-31T10:00:00Z", field=name)
    return at_s


LEGACY: Final = Spelling(
    *("service", "operation", "tags", "minDuration", "maxDuration", "limit", "start", "end"), _microseconds
)
V3: Final = Spelling(
    *("query.service_name", "query.operation_name", "query.attributes"),
    *("query.duration_min", "query.duration_max", "query.search_depth"),
    *("query.start_time_min", "query.start_time_max"),
    _rfc3339,
)


def in_snake_case(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of API v3, which may be written as `serviceName` or as `service_name`."""
    return {_UPPER.sub(lambda match: f"_{match[0].lower()}", name): text for name, text in query.items()}


def search_query(
    query: Mapping[str, str], spelling: Spelling, now_s: float, pairs: list[str] | None = None
) -> SearchQuery:
    """Return the search. `pairs`: tags as `key:value`. Raises `MalformedBody` or `InvalidFilter`."""
    if "query.filter" in query:
        raise MalformedBody("query.filter is not supported; expected query.attributes", field="query.filter")
    begin_s, end_s = spelling.at_s(query, spelling.begin), spelling.at_s(query, spelling.end)
    return SearchQuery(
        filters.HasSpan(
            filters.And(
                (*_fields(query, spelling), *_tags(query.get(spelling.tags, ""), pairs or [], spelling.tags))
            )
        ),
        time_range(begin_s, end_s, now_s),
        limit_of(query, spelling.limit, SEARCHED_TRACES_DEFAULT, TRACES_MAX),
    )


def recent(query: Mapping[str, str], default_s: float, now_s: float) -> TimeRange:
    """Return the range that `endTs` and `lookback` describe, in milliseconds."""
    to_s = instant_s(query, "endTs", 1_000)
    lookback_s = instant_s(query, "lookback", 1_000)
    to_s = now_s if to_s is None else to_s
    return time_range(max(0.0, to_s - (default_s if lookback_s is None else lookback_s)), to_s, now_s)


def _fields(query: Mapping[str, str], spelling: Spelling) -> Iterator[filters.Filter]:
    fields: tuple[tuple[str, str, filters.Operator], ...] = (
        (spelling.service, "service", "="),
        (spelling.operation, "operation", "="),
        (spelling.duration_min, "duration", ">="),
        (spelling.duration_max, "duration", "<="),
    )
    for name, field, operator in fields:
        if query.get(name):
            yield compared(filters.Intrinsic(field), operator, query[name], name)


def _tags(text: str, pairs: list[str], parameter: str) -> Iterator[filters.Filter]:
    tags = [*_json_tags(text, parameter), *(_pair(pair) for pair in pairs)]
    if len(tags) > TERMS_MAX:
        raise MalformedBody(f"{parameter}: expected at most {TERMS_MAX} tags", field=parameter)
    for key, value in tags:
        yield _tag(key, value, parameter)


def _json_tags(text: str, parameter: str) -> list[tuple[str, str]]:
    if not text:
        return []
    problem = MalformedBody(f"{parameter}: expected a JSON object whose values are texts", field=parameter)
    if len(text) > JSON_CHARACTERS_MAX:
        raise MalformedBody(
            f"{parameter}: expected at most {JSON_CHARACTERS_MAX} characters", field=parameter
        )
    try:
        found = orjson.loads(text.encode())
    # A text that is not UTF-8 has surrogates, which cannot be encoded.
    except ValueError as error:
        raise problem from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise problem
    return list(found.items())


def _pair(pair: str) -> tuple[str, str]:
    key, colon, value = pair.partition(":")
    if not colon:
        raise MalformedBody("tag: expected a key and a value, like http.route:/cart", field="tag")
    return key, value


def _tag(key: str, value: str, parameter: str) -> filters.Filter:
    if key == "error" and value in ("true", "false"):
        is_error = filters.Comparison(filters.Intrinsic("status"), "=", "Error")
        return is_error if value == "true" else filters.Not(is_error)
    if key in _FIELDS:
        return compared(filters.Intrinsic(_FIELDS[key]), "=", value, parameter)
    check_named(key, parameter)
    return compared(filters.Attribute("", key), "=", value, parameter)


def compared(
    field: filters.Intrinsic | filters.Attribute, operator: filters.Operator, text: str, parameter: str
) -> filters.Comparison:
    """Return the comparison of a field with the text of a parameter. Raises `InvalidFilter`."""
    check_named(text, parameter)
    try:
        return comparison(field, operator, Value(text, Place(1), is_exact=True), Place(1))
    except InvalidFilter as error:
        raise error.named(parameter) from error


def check_named(text: str, parameter: str) -> None:
    """Raise `InvalidFilter` for a text of this parameter that the engine cannot compare."""
    try:
        check_text(text)
    except InvalidFilter as error:
        raise error.named(parameter) from error
