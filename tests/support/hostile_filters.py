"""Texts that attack a query, and a store that keeps statements instead of running them."""

from __future__ import annotations

from collections.abc import Iterator

HOSTILE = (
    "' OR 1=1 --",
    "') OR 1=1 SETTINGS readonly=0 --",
    "1) UNION ALL SELECT file('/etc/passwd') --",
    "x'; DROP TABLE otel_traces; SELECT '",
    "\\' OR 1=1 --",
    "{filter_0:String}",
    "{from_ns:Identifier}",
    "{table}{settings}",
    "%s%(x)s{}",
    "`TraceId`",
    "/* */ FORMAT Null",
    "\x1b]0;title\x07\x1b[2J",
    "\u202eabc\n\t\r",
)


class RecordingStore:
    """Store that answers nothing and keeps its statements."""

    definition_version = None

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.parameters: list[object] = []

    def rows(self, statement: str, parameters: object = None) -> list[tuple[str | int, int, int]]:
        self.statements.append(statement)
        self.parameters.append(parameters)
        return [(0, 0, 0)] if "SELECT count()" in statement else []

    def lines(self, statement: str, parameters: object = None) -> Iterator[bytes]:
        self.rows(statement, parameters)
        return iter(())
