"""Question about the stored spans: its parameters, its query, and the form of its answer.

The API has a route for each question, the command line a command. Both pass the parameters as texts, so that
both check them alike and word their errors alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from receiver.console.queries.filters.filter import And, Filter
from receiver.console.queries.filters.filter_forms import parse_span_filter
from receiver.console.queries.filters.filter_values import meant
from receiver.console.queries.limits import NAMES_DEFAULT, NAMES_MAX, LimitedLines, parse_limit
from receiver.console.queries.page_cursor import PARAMETER, PageCursor, parse_cursor
from receiver.console.queries.parameter_types import TEXT, Schema
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import SINCE_DEFAULT, TimeRange, parse_range

NAME_CHARACTERS_MAX: Final = 40
"""Length up to which an error shows the name of an unknown parameter."""
_PLAIN_NAME: Final = re.compile(f"[a-z_]{{1,{NAME_CHARACTERS_MAX}}}")
COMMON: Final = ("since", "until", "limit")
"""Parameters of every question."""


Own = TypeVar("Own")
"""Struct of the parameters that only one question has."""
_NONE: Final[Any] = None


class Asked(NamedTuple, Generic[Own]):
    """The parsed parameters of one call."""

    range: TimeRange = TimeRange()
    limit: int = NAMES_DEFAULT
    filter: Filter = And(())
    cursor: PageCursor | None = None
    """Where the page begins; `None` if the call does not ask for pages."""
    own: Own = _NONE
    """Parameters of this question only; `None` if it has none."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of one question, in addition to the common parameters."""

    name: str
    help: str
    """Description of the value, such as `the name of a service`."""
    is_required: bool = False
    is_positional: bool = False
    """On the command line: an argument, not an option."""
    is_list: bool = False
    """Whether commas separate several values."""
    schema: Schema = field(default_factory=lambda: TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[Own]):
    """A question: its parameters, its query, and the form of its answer."""

    summary: str = ""
    """A sentence for the command's help and for the description of the API."""
    row: type
    """A `TypedDict`: a line of the answer. The description of the API is derived from it."""
    ask: Callable[[Store, Asked[Own], float], LimitedLines]
    """Answers with lines; the last argument is the time in seconds. It may run statements, so it blocks."""
    ask_arrow: Callable[[Store, Asked[Own], float], Iterator[bytes]] | None = None
    """Answers with an Arrow stream of all matching rows, or fails. `None`: not available."""
    noun: str = "line"
    """Noun for a line of the answer, used in notes: `trace`."""
    parameters: tuple[Parameter, ...] = ()
    parse_own: Callable[[Mapping[str, str], TimeRange], Own] = _NONE
    """Parses `parameters`; required if there are any. Raises `MalformedBody`."""
    has_filter: bool = False
    filters_traces: bool = False
    """Whether the filter is of traces; `parse_own` parses it."""
    has_cursor: bool = False
    is_single: bool = False
    """Whether the answer is one JSON object and not lines."""
    is_short: bool = False
    """Whether it reads little, so that the API does not let it wait behind longer questions."""
    limit_default: int = NAMES_DEFAULT
    limit_max: int = NAMES_MAX
    examples: tuple[str, ...] = ()
    hint_if_empty: str = ""
    """Text that the command adds to its note about an empty answer."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of all parameters."""
        own = tuple(parameter.name for parameter in self.parameters)
        filters = ("filter",) if self.has_filter else ()
        return (*own, *filters, *((PARAMETER,) if self.has_cursor else ()), *COMMON)

    def parse(self, query: Mapping[str, str]) -> Asked[Own]:
        """Check the parameters of a call. Raises `MalformedBody` or `InvalidFilter`."""
        reject_unknown_parameters(query, self.parameter_names)
        for parameter in self.parameters:
            if parameter.is_required and parameter.name not in query:
                raise MalformedBody(
                    f"{parameter.name} is missing; expected {parameter.help}", field=parameter.name
                )
        time_range = parse_range(query.get("since", SINCE_DEFAULT), query.get("until", ""))
        return Asked(
            range=time_range,
            limit=parse_limit(query.get("limit", str(self.limit_default)), self.limit_max),
            filter=And(()) if self.filters_traces else parse_span_filter(query.get("filter", "")),
            own=_NONE if self.parse_own is None else self.parse_own(query, time_range),
            cursor=parse_cursor(query, self.noun),
        )


def _unknown_parameter(name: str, known: tuple[str, ...]) -> MalformedBody:
    """Return the error about an unknown parameter. Its name is shown only if it is a short plain word."""
    is_plain = _PLAIN_NAME.fullmatch(name) is not None
    shown = f" '{name}'" if is_plain else ""
    close = meant(name[:NAME_CHARACTERS_MAX], known)
    return MalformedBody(
        f"unknown parameter{shown} in the URL; known are: {', '.join(sorted(known)) or 'none'}"
        f"{close and f'; {close}'}",
        field=name if is_plain else "query",
    )


def reject_unknown_parameters(query: Mapping[str, Any], known: tuple[str, ...] = ()) -> None:
    """Raise `MalformedBody` for an unknown or repeated parameter: ignoring it would mislead the client."""
    for name in query:
        if name not in known:
            raise _unknown_parameter(name, known)
    # A mapping of URL parameters has an item for each occurrence.
    if len(set(query)) < len(query):
        raise MalformedBody("a parameter is repeated in the URL; expected it once", field="query")
