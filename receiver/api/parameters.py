"""What may stand behind the `?` of a URL of the API: the same for every route."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from receiver.errors import MalformedBody


def refuse_unknown(query: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Raise `MalformedBody` for a parameter that means nothing here: whoever said it expects something."""
    if not set(query) <= set(known):
        names = ", ".join(sorted(known)) or "none"
        raise MalformedBody(f"unknown parameter in the URL; known are: {names}", field="query")
