"""Limit of a caller to some projects: conditions that the store adds to every read of a table with projects.

Invariant: each table with spans, or with names or numbers of spans, has a condition. No parameter of a caller
is part of it, so no filter can extend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from receiver.console.queries.rollup.tables import CALLS, ROLLUPS, TOTALLED
from receiver.engine.sql import quoted_text
from receiver.engine.store import DEPLOYMENT_EVENTS, TABLE

TABLES: Final = (
    TABLE,
    DEPLOYMENT_EVENTS,
    *(table for rollup in ROLLUPS for table in (rollup.table, rollup.day_table)),
    *TOTALLED,
    CALLS,
)


def table_filters(projects: Sequence[str]) -> dict[str, str]:
    """Return the condition of each table that leaves the rows of these projects; none for all projects."""
    if not projects:
        return {}
    # Names from the settings, not from a request; a setting of a statement takes no parameters.
    names = f"({', '.join(map(quoted_text, projects))})"
    conditions = dict.fromkeys(TABLES, f"ProjectId IN {names}")
    # A caller is a span, too.
    return conditions | {CALLS: f"ProjectId IN {names} AND ClientProjectId IN {names}"}
