"""Check of the query parameters of the API, the same for every route."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from receiver.errors import MalformedBody


def reject_unknown_parameters(query: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Raise `MalformedBody` for an unknown parameter: ignoring it would mislead the client."""
    if not set(query) <= set(known):
        names = ", ".join(sorted(known)) or "none"
        raise MalformedBody(f"unknown parameter in the URL; known are: {names}", field="query")
