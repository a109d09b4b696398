"""Completion of the last comparison of a filter: fields, keys of attributes, and stored values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from receiver.cli.console.value_completion import completable, stored_rows
from receiver.console.queries.filters import filter as filters
from receiver.console.queries.filters.filter_values import PLAIN_KEY

_LAST: Final = re.compile(
    r"""(?:^|(?<=[\s(\{-]))(?P<key>[A-Za-z_][\w.:/-]*|)(?:(?P<operator>!=|=)(?P<value>"[^"]*|[^\s()"{}]*))?$"""
)
"""The last comparison of a filter, which may be incomplete."""
_PLAIN: Final = re.compile(r"[\w./:@,+%\[\]-]+")
"""Value that needs no quotation marks."""
_QUESTION_OF: Final = {
    "service": "services",
    "trace:service": "services",
    "project": "deployments",
    "deployment": "deployments",
}
"""Field → query whose lines have its values."""


class _Receiver(NamedTuple):
    """Configuration file and data directory of the receiver, which may be omitted."""

    config: str | None
    data: str | None


def complete_filter(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Return the filter with each completion of its last comparison. None for a query in TraceQL."""
    match = None if context.params.get("is_traceql") else _LAST.search(incomplete)
    if match is None:
        return []
    receiver = _Receiver(context.params.get("config"), context.params.get("data"))
    key, operator, value = match["key"], match["operator"], match["value"] or ""
    if operator:
        texts = _comparisons(receiver, key, operator, value)
    else:
        texts = completable(_keys(receiver, key, is_search=context.command.name == "search"), key)
        # A single key would get a closing quotation mark from the shell, and its values are next anyway.
        if len(texts) == 1 and texts[0].endswith("="):
            texts = _comparisons(receiver, texts[0][:-1], "=", "") or texts
    return [CompletionItem(incomplete[: match.start("key")] + text) for text in texts]


def _keys(receiver: _Receiver, typed: str, *, is_search: bool) -> Iterator[str]:
    """Yield fields and keys of attributes with the operator that usually follows."""
    for name, completion in filters.FIELD_COMPLETIONS.items():
        # Only a search compares fields of the trace.
        if is_search or name not in filters.TRACE_FIELDS:
            yield completion
    # A key with a dot also has a longer form, which is completed when its beginning is typed.
    is_scoped = typed.startswith(("span.", "resource."))
    rows = stored_rows("attributes", *receiver)
    names = {
        row["key"] if "." in row["key"] and not is_scoped else f"{row['scope']}.{row['key']}" for row in rows
    }
    # A key with other characters has to be quoted.
    yield from (f"{name}=" for name in sorted(names) if PLAIN_KEY.fullmatch(name))


def _comparisons(receiver: _Receiver, key: str, operator: str, typed: str) -> list[str]:
    """Return comparisons with the values that begin with the typed text, the most frequent first."""
    is_quoted = typed.startswith('"')
    texts = (_value_text(value, is_quoted=is_quoted) for value in _values(receiver, key) if value)
    return [f"{key}{operator}{text}" for text in completable(dict.fromkeys(texts), typed)]


def _values(receiver: _Receiver, key: str) -> list[str]:
    words = filters.WORDS.get(filters.INTRINSICS.get(key, "text"))
    if words is not None:
        return list(words)
    if key in _QUESTION_OF:
        column = key.removeprefix("trace:")
        return [row[column] for row in stored_rows(_QUESTION_OF[key], *receiver)]
    scope, _, name = key.partition(".")
    if scope not in {"span", "resource"}:
        scope, name = "", key
    if key in filters.INTRINSICS or key in filters.ALIASES:
        return []
    rows = stored_rows("attributes", *receiver, key=name)
    return [row["value"] for row in rows if not scope or row["scope"] == scope]


def _value_text(value: str, *, is_quoted: bool) -> str:
    r"""Return the value as it is written in a filter: `\*` is a star, and spaces need quotation marks."""
    escaped = re.sub(r'([\\"*])', r"\\\1", value)
    return escaped if _PLAIN.fullmatch(value) and not is_quoted else f'"{escaped}"'
