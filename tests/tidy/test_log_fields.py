"""Log fields have the same names everywhere, so that one search covers the lines of every process."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.test_tidy import PYTHON, ids

METHODS = {"debug", "info", "warning", "error", "critical"}
"""Of structlog's loggers and of `limited`; nothing else in the receiver has methods of these names."""
COMMON = {"segment", "drain", "path", "error", "action", "exc_info"}
"""Subject, cause (`exc_info` becomes `error`), and what the receiver does or an operator can do."""
VALUES = {
    *("answers", "at_next_start", "bytes", "bytes_max", "changed", "chosen", "connections_max"),
    *("content_type", "cut_bytes", "deliveries", "descriptors_max", "digest", "grace_s", "lines"),
    *("model", "name", "part", "peer"),
    *("pid", "port", "reserve", "role", "seconds", "silent_s", "spans", "status", "table"),
    "cause",  # key of a connection error; docs/operations.md has the table
}
"""The other values. Do not add another word for the cause: it is `error`."""


def log_calls(path: Path) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
    ]


RECEIVER = [path for path in PYTHON if ids(path).startswith("receiver/")]


def test_log_fields_have_known_names_and_every_listed_name_is_used() -> None:
    fields = {
        word.arg: f"{ids(path)}:{call.lineno}"
        for path in RECEIVER
        for call in log_calls(path)
        for word in call.keywords
        if word.arg is not None
    }

    assert {name: line for name, line in fields.items() if name not in COMMON | VALUES} == {}
    assert fields.keys() >= VALUES
