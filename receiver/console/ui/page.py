"""A page: its address, its name, the question that it answers, and the function that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from receiver.console.ui.view import View
from receiver.settings import Role

Context = dict[str, Any]
"""Variables of the page's template."""


class Page(NamedTuple):
    """A page. Its template has the name of the page."""

    name: str
    path: str
    title: str
    """Name in the navigation."""
    question: str
    """Heading: the question that the page answers."""
    build: Callable[[View], Awaitable[Context]]
    key: str = ""
    """Second key of the shortcut `g KEY`. A page without one is not in the navigation."""
    within_projects: bool = False
    """Whether all of its data comes from `view.source`, so that users with limited projects may open it."""
    is_live: bool = False
    """Whether the page shows the state at the time of the request: it has no time range."""
    has_pickers: bool = False
    """Whether a project and a deployment restrict what it shows, so that the frame offers both."""
    has_filter_form: bool = False
    """Whether a form on the page shows its filter. Otherwise the frame shows it."""
    redirect: Callable[[View], Awaitable[str]] | None = None
    """Returns the URL of the page of a record that the parameters name; empty if they name none."""
    is_record: bool = False
    """Whether it shows one record, such as a trace, and has status 404 if the record does not exist."""
    parameters: tuple[str, ...] = ()
    """Parameters of its URL besides those of every page."""
    role: Role = "viewer"
    """Role that the page requires. The navigation of other users does not list it."""
