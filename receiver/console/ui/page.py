"""A page: its address, its name, its heading, and the function that builds its content."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from receiver.console.ui.view import View
from receiver.settings import Role

Context = dict[str, Any]


class Page(NamedTuple):
    """A page. Its template has the name of the page."""

    name: str
    path: str
    title: str
    """Name in the navigation."""
    question: str
    """Heading, which is the question that the page answers."""
    build: Callable[[View], Awaitable[Context]]
    key: str = ""
    """Second key of the shortcut `g KEY`. A page without a key is not in the navigation."""
    within_projects: bool = False
    """Whether it reads all data through `view.source`, so that users with limited projects may open it."""
    is_live: bool = False
    """Whether the page shows the state at the time of the request: it has no time range."""
    has_pickers: bool = False
    """Whether a project and a deployment restrict its content, so that the frame offers both."""
    has_filter_form: bool = False
    """Whether a form on the page shows its filter. Otherwise the frame shows it."""
    redirect: Callable[[View], Awaitable[str]] | None = None
    """Returns the URL of the page of a record that the parameters name; empty if they name none."""
    is_record: bool = False
    """Whether it shows a single record, such as a trace, and has status 404 if the record does not exist."""
    parameters: tuple[str, ...] = ()
    """Parameters of its URL in addition to `parameters.FRAME`."""
    role: Role = "viewer"
    """Role that the page requires. Only users with this role see the page in the navigation."""
