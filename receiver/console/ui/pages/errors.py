"""Page of the errors: grouped by service, type and message template."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Final

from receiver.console.api.source import Row
from receiver.console.queries.filters.filter_values import quoted
from receiver.console.queries.message_template import PLACEHOLDERS
from receiver.console.ui.charts.svg import sparkline
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.page import Context
from receiver.console.ui.pages.columns import sorted_rows
from receiver.console.ui.view import View, moment, term

GROUPS_MAX = 100
NAMES_MAX: Final = 8
"""Maximum number of operations and of deployments of a group that the page shows."""

MESSAGE_CHARS_MAX: Final = 300
"""Maximum length of the part of a message that a link searches for."""
_SORTED: Final = ("spans", "traces", "service", "error", "first", "last")
"""Columns whose heads sort the groups."""
_PLACEHOLDER: Final = re.compile("|".join(map(re.escape, PLACEHOLDERS)))


def group_filter(row: Row) -> str:
    """Return a filter for the spans of an error group: service, type, and the message with wildcards."""
    message = row["message"][:MESSAGE_CHARS_MAX]
    if len(message) < len(row["message"]):
        # Only whole words: a placeholder that is cut in two would be searched as text.
        message = message.rpartition(" ")[0] or message
    # A filter cannot have the character NUL.
    pattern = _PLACEHOLDER.sub("*", quoted(message).replace("*", r"\*")).replace("\0", "*")
    texts = [term("text", row["type"])] if row["type"] else []
    texts += [f"text={pattern}"] if message else []
    return all_of(term("service", row["service"]), "has-error", *texts)


async def build(view: View) -> Context:
    """Return the groups of errors, most frequent first unless the parameter `sort` has another order."""
    answer = await view.ask("errors", filter=view.filter(view.filter_text), limit=str(GROUPS_MAX))
    measures = {**{name: itemgetter(name) for name in _SORTED}, "error": itemgetter("type", "message")}
    rows, heads = sorted_rows(view, answer.rows, measures, ("service", "error"))
    return {
        "groups": [_shown(view, row) for row in rows],
        "most_frequent": answer.rows[0] if answer.rows else None,
        "heads": heads,
        "names_max": NAMES_MAX,
        "is_cut": answer.is_cut,
        "spans": sum(row["spans"] for row in answer.rows),
    }


def _shown(view: View, row: Row) -> Row:
    """Return a group with the filter for its spans, and its numbers of spans by deployment."""
    return {
        **row,
        "filter": all_of(view.filter_text, group_filter(row)),
        "times": [(row[end], moment(row[end])) for end in ("first", "last")],
        "trend": sparkline(row["over_time"], f"spans over time, at most {max(row['over_time'])} an interval"),
        "by_deployment": list(zip(row["deployments"], row["deployment_spans"], strict=True)),
    }
