"""Page that compares two deployments; without both of them, the list from which a reader chooses them."""

from __future__ import annotations

from receiver.ui.page import Context
from receiver.ui.view import View

DEPLOYMENTS_MAX = 100


async def build(view: View) -> Context:
    """Return the comparison of `a` and `b`, and the deployments of the time range."""
    a, b = view.query.get("a", ""), view.query.get("b", "")
    deployments = await view.ask("deployments", filter=view.filter(), limit=str(DEPLOYMENTS_MAX))
    found = None
    if a and b:
        first = {"first": view.query["first"]} if view.query.get("first") else {}
        found = (await view.ask("compare", a=a, b=b, filter=view.filter(), **first)).rows[0]
    return {"a": a, "b": b, "found": found, "deployments": deployments.rows}
