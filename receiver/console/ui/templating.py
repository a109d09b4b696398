"""Templates of the pages, and the functions that they may call.

Invariant: text of senders is escaped, because every template escapes its variables, and an undefined variable
is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from receiver.console.ui import numbers
from receiver.console.ui.charts import svg
from receiver.console.ui.filter_text import all_of, known_terms
from receiver.console.ui.long_texts import cut
from receiver.console.ui.static import url_of
from receiver.console.ui.view import instant, term
from receiver.sizes import size_text


def sentence(message: str) -> str:
    """Return a message of the API as a sentence with a capital letter and a full stop."""
    return f"{message[:1].upper()}{message[1:].rstrip('.')}."


def json_text(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


_FILTERS = {
    "ago": numbers.ago,
    "change": numbers.change,
    "count": numbers.count,
    "cut": cut,
    "duration": numbers.duration,
    "instant": instant,
    "json_text": json_text,
    "percent": numbers.percent,
    "sentence": sentence,
    "short_id": numbers.short_id,
    "size": size_text,
    "time": numbers.time_tag,
}
_FUNCTIONS = {
    "all_of": all_of,
    "id_length": numbers.id_length,
    "known_terms": known_terms,
    "per_minute": numbers.per_minute,
    "share_bar": svg.share_bar,
    "sparkline": svg.sparkline,
    "static": url_of,
    "term": term,
}


def environment(more: Sequence[str] = ()) -> Environment:
    """Return the environment of all templates, which escapes in files of every name.

    `more`: packages with the templates of other areas.
    """
    # `autoescape=True` rather than a choice by file name: no template is exempt.
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in ("receiver.console.ui", *more)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_FILTERS)
    made.globals.update(_FUNCTIONS)
    return made


def render(made: Environment, name: str, variables: dict[str, Any]) -> str:
    """Render a template."""
    return made.get_template(f"{name}.html").render(variables)
