"""Views from outside: a name in plain text, and the URL of a page of this receiver.

Invariant: the URL of a view is composed of the path of a page in `PAGES` and of parameters of this page, so
that a view never leads to another site or to an action.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from multidict import MultiDict

from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.parameters import checked_parameters
from receiver.console.ui.views.store import SavedView, Views
from receiver.errors import MalformedBody
from receiver.time_range import SINCE_DEFAULT, parse_range

NAME_CHARS_MAX = 80
URL_CHARS_MAX = 8_000
_PARAMETERS_MAX: Final = 32
PATHS: Final = {page.path: page for page in PAGES.values() if not page.is_record and page.name != "views"}
"""Path → page that a view may show. A page of one record has its own address already."""


def parse_views(body: bytes) -> list[SavedView]:
    """Parse a document of views. Raises `MalformedBody`."""
    try:
        views = msgspec.json.decode(body, type=Views).views
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(
            'expected a JSON document {"views": [{"name": …, "url": …}]}, as `views export` prints it',
            field="views",
        ) from error
    return [checked_view(each.name, each.url) for each in views]


def checked_view(name: str, url: str, since: str = "") -> SavedView:
    """Return a view. Raises `MalformedBody`. `since`: age that replaces the time range of the URL."""
    name = name.strip()
    if not (0 < len(name) <= NAME_CHARS_MAX and name.isprintable()):
        raise MalformedBody(
            f"name: expected a line of 1 to {NAME_CHARS_MAX} printable characters", field="name"
        )
    path, _, query = url.partition("?")
    page = PATHS.get(path)
    if page is None or len(url) > URL_CHARS_MAX:
        raise MalformedBody(
            f"url: expected the path and parameters of a page, such as /search?filter=status%3Derror, of at "
            f"most {URL_CHARS_MAX} characters; pages are {', '.join(PATHS)}",
            field="url",
        )
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise MalformedBody(f"url: expected at most {_PARAMETERS_MAX} parameters", field="url") from error
    parameters = dict(checked_parameters(MultiDict(pairs), page.parameters))
    if since:
        parameters = {**parameters, "since": since}
        parameters.pop("until", None)
    parse_range(parameters.get("since", SINCE_DEFAULT), parameters.get("until", ""))
    return SavedView(name, f"{path}?{urlencode(parameters, quote_via=quote)}" if parameters else path)
