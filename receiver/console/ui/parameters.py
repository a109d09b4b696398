"""Parameters of a page's URL: each is known and occurs once. Old links send the filter as `q`.

Invariant: no parameter is ignored. A page that ignored a mistyped filter would show unfiltered results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multidict import MultiDict

from receiver.console.queries.question import reject_unknown_parameters
from receiver.errors import MalformedBody

FRAME: Final = ("since", "until", "refresh", "project", "deployment")
"""Parameters of every page: the links of the frame keep them."""
FILTER: Final = "filter"
CHART: Final = ("measure", "by", "top", "draw")
"""Parameters of the chart of the search page, which its links keep."""
_FILTER_IN_OLD_LINKS: Final = "q"


def checked_parameters(query: Mapping[str, str], own: tuple[str, ...]) -> Mapping[str, str]:
    """Return the parameters of a page. Raises `MalformedBody` for an unknown or repeated parameter.

    `own`: parameters of the page in addition to `FRAME`.
    """
    if FILTER in own:
        if FILTER in query and _FILTER_IN_OLD_LINKS in query:
            raise MalformedBody(
                "filter and q are the same parameter of the URL; expected one of them", field=FILTER
            )
        query = MultiDict(
            (FILTER if name == _FILTER_IN_OLD_LINKS else name, value) for name, value in query.items()
        )
    reject_unknown_parameters(query, (*own, *FRAME))
    return query
