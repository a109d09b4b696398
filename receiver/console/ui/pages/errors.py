"""Page of the errors: grouped by service, type and message template."""

from __future__ import annotations

from receiver.console.ui.page import Context
from receiver.console.ui.view import View

GROUPS_MAX = 100
"""Maximum number of groups that the page shows."""


async def build(view: View) -> Context:
    """Return the groups of errors, most frequent first."""
    answer = await view.ask("errors", filter=view.filter(view.filter_text), limit=str(GROUPS_MAX))
    return {"groups": answer.rows, "is_cut": answer.is_cut, "spans": sum(row["spans"] for row in answer.rows)}
