"""The page `/docs`: the description of the API for readers, without scripts and without anything to load."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { font: 0.9em ui-monospace, monospace; background: #f3f3f3; padding: 0 0.2em }
h2 { margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #ddd; padding: 0.3rem 0.6rem 0.3rem 0; text-align: left }
td { vertical-align: top }
nav { columns: 18rem }
code, td { overflow-wrap: anywhere }
@media (max-width: 40rem) { nav { columns: 1 } }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #ddd }
  code { background: #2a2a2a }
  a { color: #8ab4f8 }
}
"""
STYLE_SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
"""The style as a source in a Content-Security-Policy, which permits no other style."""

_HEADS: Final = "".join(f'<th scope="col">{name}</th>' for name in ("parameter", "type", "meaning"))
_METHODS: Final = ("get", "post", "delete")


def page(document: Mapping[str, Any]) -> str:
    """Return a description in OpenAPI as an HTML page."""
    operations = [
        (method, path, item[method])
        for path, item in sorted(document["paths"].items())
        for method in _METHODS
        if method in item
    ]
    links = "<br>".join(
        f'<a href="#{escape(operation["operationId"])}"><code>{method.upper()} {escape(path)}</code></a>'
        for method, path, operation in operations
    )
    title = f"API of {escape(document['info']['title'])} {escape(document['info']['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f"{_STYLE}</style><main><h1>{title}</h1><p>{escape(document['info']['description'])}</p>"
        '<p>For programs: <a href="/api/v1/openapi.json">OpenAPI 3.1</a>. Errors are problem details '
        "(RFC 9457).</p>"
        f'<nav aria-label="Routes">{links}</nav>'
        f"{''.join(_section(*operation) for operation in operations)}</main>\n"
    )


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    responses = operation["responses"]
    content_types = ", ".join(f"<code>{escape(name)}</code>" for name in responses["200"]["content"])
    errors = ", ".join(status for status in responses if status.isdigit() and status != "200")
    return (
        f'<section id="{escape(operation["operationId"])}">'
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation['summary'])}</p>{_table(operation['parameters'])}"
        f"<p>Answers: {content_types}. Errors: {errors}.</p></section>"
    )


def _table(parameters: list[Mapping[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(parameter['name'])}</code>"
        f"{' (required)' if parameter['required'] else ''}</td>"
        f"<td>{', '.join(_type_of(parameter['schema']))}</td><td>{escape(parameter['description'])}</td></tr>"
        for parameter in parameters
    )
    return f"<table><tr>{_HEADS}</tr>{rows}</table>"


def _type_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a type: its name or its allowed values, its limits, its default."""
    if "enum" in schema:
        yield " | ".join(f"<code>{escape(value)}</code>" for value in schema["enum"])
    elif "anyOf" in schema:
        yield " or ".join(escape(each.get("title", each.get("format", ""))) for each in schema["anyOf"])
    else:
        yield escape(schema["type"])
    if "pattern" in schema:
        yield f"<code>{escape(schema['pattern'])}</code>"
    if "minimum" in schema:
        yield f"{schema['minimum']} to {schema['maximum']}"
    if "default" in schema:
        yield f"default <code>{escape(str(schema['default']).lower())}</code>"
