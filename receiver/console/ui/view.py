"""Request for a page: its parameters, its time range, and its queries.

Invariant: all queries of a page have the same time range, with absolute times. Its links and forms keep
an age as the request has it: the last hour stays the last hour. A link to one interval has the times of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import quote, urlencode

from receiver.console.api.access import Caller
from receiver.console.api.source import Answer, SourceWithSql
from receiver.console.queries.filters.filter_values import quoted
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.long_texts import with_cut_texts
from receiver.console.ui.parameters import CHART, FILTER
from receiver.errors import MalformedBody
from receiver.settings import Role
from receiver.time_range import (
    SINCE_DEFAULT,
    ends_of,
    instant_text,
    parse_instant,
    parse_range,
    parse_seconds,
)

DEPLOYMENT_CHARS_MAX = 256
"""Maximum length of a deployment's id in a link."""
REFRESHES: Final = {"": "off", "10s": "10 s", "1m": "1 min", "5m": "5 min"}
"""How often a page reloads itself: parameter → label."""
RANGE_PARAMETERS: Final = ("since", "until")


class View:
    """Parameters of a page, and the queries over its time range."""

    def __init__(  # noqa: PLR0913 - a request, and where its page reads
        self,
        path: str,
        query: Mapping[str, str],
        now_s: float,
        source: SourceWithSql,
        parts: Mapping[str, str],
        *,
        facts: ReceiverFacts,
        caller: Caller | None = None,
    ) -> None:
        """Raises `MalformedBody` for a time range that is not valid. `parts`: variable parts of the path."""
        self.caller = caller
        self.path = path
        self.parts = parts
        self.query = query
        self.since, self.until = ends_of(query.get("since") or SINCE_DEFAULT, query.get("until", ""))
        self.now_s = now_s
        begin_s, end_s = parse_range(self.since, self.until).past_s(now_s)
        self.begin_s = begin_s
        # A span that was stored in this second belongs to the page.
        self.end_s = end_s if self.until else float(math.ceil(now_s))
        self.source = source
        self.facts = facts
        self.refresh = self.one_of("refresh", REFRESHES, "")
        self.range_error = ""
        """Error of the time range of the request, in place of which the page has the default range."""
        self.rejected_since = ""
        self.add_error = ""
        """Error of the column that a form adds to the list of traces."""

    def may(self, needed: Role) -> bool:
        """Return whether the caller has this role or a higher one."""
        return self.caller is None or self.caller.may(needed)

    @property
    def projects(self) -> tuple[str, ...]:
        """Return the only projects whose spans the caller may see; empty means all."""
        return self.caller.projects if self.caller else ()

    def project_text(self, project_id: str) -> str:
        """Return the text of a project: its id, with its name if the platform has sent a name."""
        name = self.facts.project_name(project_id)
        return f"{name} ({project_id})" if name else project_id

    @property
    def times(self) -> dict[str, str]:
        """Return the time range as parameters with absolute times."""
        return {"since": instant(self.begin_s), "until": instant(self.end_s)}

    @property
    def range(self) -> dict[str, str]:
        """Return the time range as parameters; an age stays an age."""
        return {"since": self.since, **({"until": self.until} if self.until else {})}

    @property
    def asked_range(self) -> dict[str, str]:
        """Return the time range as `range` does, with the time to reload."""
        return {**self.range, **({"refresh": self.refresh} if self.refresh else {})}

    def ages_text(self, names: Mapping[str, str]) -> str:
        """Return a time range between ages in words; empty with an instant. `names`: words by age."""
        if any(parse_seconds(end) is None for end in self.range.values()):
            return ""
        return (
            f"{self.since} to {self.until} ago" if self.until else names.get(self.since, f"last {self.since}")
        )

    @property
    def now(self) -> str:
        """Return the time of the request."""
        return instant(self.now_s)

    @property
    def seconds(self) -> float:
        """Return the length of the time range."""
        return self.end_s - self.begin_s

    @property
    def chosen(self) -> dict[str, str]:
        """Return the project and the deployment to which the page is restricted."""
        return {name: self.query[name] for name in ("project", "deployment") if self.query.get(name)}

    @property
    def layout(self) -> dict[str, str]:
        """Return the columns, the order and the chart of a search."""
        names = ("columns", "sort", *CHART) if self.path == "/search" else ()
        return {name: self.query[name] for name in names if self.query.get(name)}

    def one_of(self, name: str, values: Collection[str], default: str) -> str:
        """Return a parameter with listed values. Raises `MalformedBody` for another value."""
        value = self.query.get(name) or default
        if value != default and value not in values:
            raise MalformedBody(f"{name}: expected one of {', '.join(values)}", field=name)
        return value

    @property
    def filter_text(self) -> str:
        """Return the filter of the page's URL."""
        return self.query.get(FILTER, "")

    def filter(self, *terms: str) -> str:
        """Return the conjunction of the page's project and deployment and these terms."""
        return all_of(*(term(name, value) for name, value in self.chosen.items()), *terms)

    def link(self, path: str, **parameters: str) -> str:
        """Return a URL with the page's project, deployment and time range, unless another range is given.

        Another search has the columns, the order and the chart of this search.
        """
        arguments = {name: value for name, value in parameters.items() if value}
        layout = self.layout if path == self.path else {}
        query = {**self.chosen, **layout, **parameters, **self.range, **arguments}
        query = {name: value for name, value in query.items() if value}
        return f"{quote(path)}?{urlencode(query, quote_via=quote)}"

    def deployment_link(self, deployment: str, **times: str) -> str:
        """Return the URL of the page of a deployment; empty for an id that is too long for a URL."""
        if not 0 < len(deployment) <= DEPLOYMENT_CHARS_MAX:
            return ""
        query = urlencode({**self.range, **times}, quote_via=quote)
        return f"/deployment/{quote(deployment, safe='')}?{query}"

    def page_link(self, path: str) -> str:
        """Return the URL of a page for the same project, deployment and time range. An age stays an age."""
        return f"{quote(path)}?{urlencode({**self.chosen, **self.asked_range}, quote_via=quote)}"

    def api(self, name: str, **parameters: str) -> str:
        """Return the URL of a query of the API over the page's time range."""
        return f"/api/v1/{name}?{urlencode({**parameters, **self.times}, quote_via=quote)}"

    @property
    def url(self) -> str:
        """Return the URL of this page with the time range of the request: an age stays an age."""
        return f"{quote(self.path)}?{urlencode({**self.query, **self.asked_range}, quote_via=quote)}"

    @property
    def permalink(self) -> str:
        """Return the URL of this page with absolute times."""
        return self._with(refresh="", **self.times)

    def without(self, name: str) -> str:
        """Return the URL of this page without a parameter."""
        return self.changed(**{name: ""})

    def changed(self, **parameters: str) -> str:
        """Return the URL of this page with these parameters; removes empty ones."""
        return self._with(**{"until": "", **self.range, **parameters})

    @property
    def without_chart(self) -> str:
        """Return the URL of this page without a chosen chart."""
        return self.changed(**dict.fromkeys(CHART, ""))

    def with_range(self, since: str) -> str:
        """Return the URL of this page for the time range from an age until now."""
        return self._with(since=since, until="")

    def with_refresh(self, refresh: str) -> str:
        """Return the URL of this page that reloads itself this often."""
        return self._with(refresh=refresh)

    @property
    def earlier(self) -> str:
        """Return the URL of this page for the range of the same length before this one."""
        return self._between(self.begin_s - self.seconds, self.begin_s)

    @property
    def later(self) -> str:
        """Return the URL of this page for the range after this one, up to now; empty if there is none."""
        begin_s = min(self.end_s, self.now_s - self.seconds)
        return self._between(begin_s, begin_s + self.seconds) if self.end_s < int(self.now_s) else ""

    @property
    def wider(self) -> str:
        """Return the URL of this page for twice the range around its centre, but not after now."""
        end_s = min(self.end_s + self.seconds / 2, max(self.end_s, self.now_s))
        return self._between(end_s - 2 * self.seconds, end_s)

    def _between(self, begin_s: float, end_s: float) -> str:
        return self._with(since=instant(max(0.0, begin_s)), until=instant(end_s))

    def _with(self, **changed: str) -> str:
        """Return the URL of this page with changed parameters; empty: without it."""
        query = {name: value for name, value in {**self.query, **changed}.items() if value}
        return f"{quote(self.path)}?{urlencode(query, quote_via=quote)}"

    async def ask(self, name: str, **parameters: str) -> Answer:
        """Run a query over the time range of the page. Long texts of the result are cut."""
        answer = await self.source.ask(name, {**self.times, **parameters})
        return answer._replace(rows=with_cut_texts(answer.rows))


def term(field: str, value: str) -> str:
    """Return a filter for a field or attribute that equals a value, which may have any characters."""
    # A star without a backslash would be a wildcard.
    return f"{field}={quoted(value).replace('*', chr(92) + '*')}"


def moment(time: str) -> dict[str, str]:
    """Return the millisecond of the time of a span as a time range."""
    at_s = parse_instant(time) or 0.0
    return {"since": instant(at_s), "until": instant(at_s + 0.001)}


def instant(at_s: float) -> str:
    """Return a time as a parameter: ISO 8601 in UTC, to the millisecond."""
    return instant_text(at_s, "milliseconds", zone="Z")
