"""Extension of the console by another area: pages, routes, names of projects, fetches of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from receiver.console.api.route import Routes
from receiver.console.api.source import ApiSourceFor
from receiver.console.ui.event_refresh import RefreshEvents, fetch_nothing
from receiver.console.ui.facts import ReceiverFacts, no_name
from receiver.console.ui.page import Page
from receiver.console.ui.site import Site


def no_routes(_site: Site, _source_for: ApiSourceFor, _facts: ReceiverFacts) -> Iterable[Routes]:
    """Return no routes."""
    return ()


@dataclass(frozen=True, slots=True)
class Extension:
    """Parts that the console includes; by default none."""

    pages: Sequence[Page] = ()
    templates: Sequence[str] = ()
    """Packages with the templates of these pages."""
    routes: Callable[[Site, ApiSourceFor, ReceiverFacts], Iterable[Routes]] = no_routes
    project_name: Callable[[str], str] = no_name
    """Returns the name of a project; empty if it is not known."""
    refresh_events: RefreshEvents = fetch_nothing


NO_EXTENSION = Extension()
