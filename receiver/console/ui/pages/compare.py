"""Page that compares two deployments; until two are chosen, the list of deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from operator import itemgetter
from typing import Final

from receiver.console.api.source import Row
from receiver.console.ui.page import Context
from receiver.console.ui.pages.columns import Measure, sorted_rows
from receiver.console.ui.view import View
from receiver.errors import MalformedBody, NoSuchDeployment

DEPLOYMENTS_MAX = 100
OFFERED_MAX = 5
"""Maximum number of deployments, the newest, that are offered instead of a deployment without spans."""
_OF_DEPLOYMENTS: Final[Mapping[str, Measure]] = {
    **{name: itemgetter(name) for name in ("project", "deployment")},
    **{name: itemgetter(f"{name}_seen") for name in ("first", "last")},
    "spans": itemgetter("spans"),
    "errors": lambda row: row["errors"] / row["spans"],
}
"""Columns that sort the list of deployments, and their values."""
_OF_OPERATIONS: Final[Mapping[str, Measure]] = {
    "operation": itemgetter("service", "name"),
    "count": lambda row: row["b"]["count"],
    "errors A": lambda row: row["a"]["error_rate"],
    "errors B": lambda row: row["b"]["error_rate"],
    **{name: itemgetter(f"{name}_change") for name in ("p50", "p95", "p99")},
}


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
        return {**context, **_listed(view, named)}
    first = {"first": view.query["first"]} if view.query.get("first") else {}
    try:
        answer = await view.ask("compare", a=a, b=b, filter=view.filter(view.filter_text), **first)
    except (MalformedBody, NoSuchDeployment) as error:
        # Not raised: the form stays on the page, so that the user can correct it.
        refusal = _refusal(view, error, deployments.rows)
        return {**context, **_listed(view, named), **refusal, "status": HTTPStatus.BAD_REQUEST}
    found = answer.rows[0]
    operations, heads = sorted_rows(view, found["operations"], _OF_OPERATIONS, ("operation",))
    return {**context, "found": {**found, "operations": operations}, "heads": heads}


def _listed(view: View, deployments: list[Row]) -> Context:
    """Return the deployments, of which the newest is the first, in the chosen order."""
    for index, row in enumerate(deployments):
        older = (each for each in deployments[index + 1 :] if each["project"] == row["project"])
        row["before"] = next(older, {}).get("deployment", "")
    rows, heads = sorted_rows(view, deployments, _OF_DEPLOYMENTS, ("project", "deployment"))
    return {"deployments": rows, "heads": heads}


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
