"""One ledger over several receivers: the sum of what each of them reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from receiver.cli.shell.api_client import query_url
from receiver.ledger.line_sums import OUTCOMES
from receiver.reports import LedgerReport
from receiver.settings import Settings

VERDICTS: Final = ("", "same", "unverifiable", "different")
"""Verdicts of a line. That of a sum is the last one of its parts in this order."""


def sum_of_receivers(settings: Settings, urls: Sequence[str], filters: Mapping[str, str]) -> dict[str, Any]:
    """Query each receiver. Raises `CommandFailed` if one does not answer: the sum would lack its spans."""
    reports = {
        url: next(query_url(url, settings.api_token, "/api/v1/ledger", filters, document=LedgerReport))
        for url in urls
    }
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for report in reports.values():
        for line in report["lines"]:
            heading = (line["hour"], line["drain"], line["project"])
            lines[heading] = _added(lines[heading], line) if heading in lines else line
    epochs = [{each["epoch"] for each in report["unknown"]} for report in reports.values()]
    first = next(iter(reports.values()))
    return {
        "taken_at": min(report["taken_at"] for report in reports.values()),
        "since": first["since"],
        "complete_from": max(report["complete_from"] for report in reports.values()),
        "trouble": "; ".join(f"{url}: {each['trouble']}" for url, each in reports.items() if each["trouble"]),
        "lines": [lines[heading] for heading in sorted(lines)],
        # To each receiver, the rows of the others are unknown.
        "unknown": [each for each in first["unknown"] if all(each["epoch"] in known for known in epochs)],
    }


def _added(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Add up two lines of the same hour, drain and project."""
    numbers = {name: left[name] + right[name] for name in (*OUTCOMES, "journal", "difference")}
    tables = [line["table"] for line in (left, right) if line["table"] is not None]
    return {
        **left,
        **numbers,
        "table": sum(tables) if tables else None,
        "verdict": max(left["verdict"], right["verdict"], key=VERDICTS.index),
        "problem": "; ".join(filter(None, (left["problem"], right["problem"]))),
    }
