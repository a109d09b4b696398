"""Page that compares two deployments; until two are chosen, the list of deployments."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from receiver.console.api.source import Row
from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.errors import MalformedBody, NoSuchDeployment

DEPLOYMENTS_MAX = 100
OFFERED_MAX = 5
"""Maximum number of deployments, the newest, that are offered instead of a deployment without spans."""


async def build(view: View) -> Context:
    """Return the comparison of `a` and `b` or its error, and the deployments of the time range."""
    a, b = view.query.get("a", ""), view.query.get("b", "")
    deployments = await view.ask(
        "deployments", filter=view.filter(view.filter_text), limit=str(DEPLOYMENTS_MAX)
    )
    # Spans without a deployment have a row, which is no deployment to compare.
    named = [row for row in deployments.rows if row["deployment"]]
    context: Context = {"a": a, "b": b, "found": None, "trouble": "", "deployments": named}
    if not (a and b):
        return context
    first = {"first": view.query["first"]} if view.query.get("first") else {}
    try:
        answer = await view.ask("compare", a=a, b=b, filter=view.filter(view.filter_text), **first)
    except (MalformedBody, NoSuchDeployment) as error:
        # Not raised: the form stays on the page, so that the user can correct it.
        return {**context, **_refusal(view, error, deployments.rows), "status": HTTPStatus.BAD_REQUEST}
    return {**context, "found": answer.rows[0]}


def _refusal(view: View, error: MalformedBody | NoSuchDeployment, deployments: Sequence[Row]) -> Context:
    """Return the error, and links that replace the deployment without spans."""
    sides = {name: view.query[name] for name in ("a", "b")}
    if error.field not in sides or sides["a"] == sides["b"]:
        return {"trouble": str(error), "without_spans": "", "offered": {}}
    names = dict.fromkeys(row["deployment"] for row in deployments)
    others = [name for name in names if name and name not in sides.values()][:OFFERED_MAX]
    first = view.query.get("first", "")
    links = {
        name: view.link("/compare", **{**sides, error.field: name}, first=first, filter=view.filter_text)
        for name in others
    }
    return {"trouble": str(error), "without_spans": error.field.upper(), "offered": links}
