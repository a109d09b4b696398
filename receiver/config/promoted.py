"""Promoted attributes: attributes with a column of their own, so that queries need not read all attributes.

An entry is `SCOPE:KEY`, then older spellings of the key: `span:http.request.method http.method`. The value of
the attribute is that of the first of these keys that the span, the resource or the event has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from receiver.settings import Settings

# No quotes and no backslashes: a key becomes part of the SQL text of its column.
_KEY = "[A-Za-z0-9._/-]+"
_ENTRY = re.compile(rf"(span|resource|event):({_KEY}(?: {_KEY})*)")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9]")


class PromotedAttribute(NamedTuple):
    scope: str
    """`span`, `resource` or `event`."""
    keys: tuple[str, ...]
    """The key, then its older spellings."""

    @property
    def key(self) -> str:
        """The key that queries name."""
        return self.keys[0]

    @property
    def column(self) -> str:
        """Name of the column: `Span_http_route`."""
        return f"{self.scope.title()}_{_NOT_IN_A_NAME.sub('_', self.key)}"

    def __str__(self) -> str:
        return f"{self.scope}:{' '.join(self.keys)}"


def parse_promoted(text: str) -> PromotedAttribute | None:
    """Parse an entry; `None` if it is malformed."""
    match = _ENTRY.fullmatch(text)
    return PromotedAttribute(match[1], tuple(match[2].split())) if match else None


def promoted_attributes(texts: tuple[str, ...] = ()) -> tuple[PromotedAttribute, ...]:
    """Return the standard promoted attributes and these entries, without malformed entries."""
    return tuple(entry for text in (*STANDARD, *texts) if (entry := parse_promoted(text)))


STANDARD = (
    "span:http.request.method http.method",
    "span:http.route",
    "span:http.response.status_code http.status_code",
    "span:server.address",
    "span:db.system.name db.system",
    "span:db.operation.name db.operation",
    "span:db.collection.name db.sql.table db.mongodb.collection",
    "span:messaging.system",
    "span:messaging.destination.name messaging.destination",
    "span:rpc.method",
    "span:error.type",
    "span:gen_ai.request.model",
    "event:exception.type",
    "resource:deployment.environment.name deployment.environment",
    "resource:service.version",
    "resource:cloud.region",
)
"""Entries of attributes that are always promoted: the keys of OpenTelemetry's semantic conventions."""


def promoted_problems(settings: Settings) -> Iterator[str]:
    """Yield a problem for each entry that is malformed or promotes an attribute again."""
    entries = settings.store.promoted_attributes
    for text in entries:
        if parse_promoted(text) is None:
            yield (
                f"store.promoted_attributes contains '{text}'; expected 'span:KEY', 'resource:KEY' or "
                "'event:KEY', with letters, digits or . _ / - in KEY"
            )
    # By column, because different keys can give the same name: `a.b` and `a_b`.
    counts = Counter(attribute.column for attribute in promoted_attributes(entries))
    # Each repeated entry is reported once.
    for attribute in dict.fromkeys(filter(None, map(parse_promoted, entries))):
        if counts[attribute.column] > 1:
            yield (
                f"store.promoted_attributes contains '{attribute}', but column {attribute.column} is that of "
                "another entry or of a standard promoted attribute; expected other keys"
            )
