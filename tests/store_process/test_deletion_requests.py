"""Requests to delete spans that are refused before anything is counted or deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from receiver.errors import DiskTrouble, MalformedBody, NotConfigured, ReceiverError
from receiver.store_process.deletion_requests import DeletionRequests
from tests.support.cases import each_case

TRACE = "5a" * 16


def requests(**writer: object) -> DeletionRequests:
    state: dict[str, Any] = {"deletions": object(), "has_tables": True, "embedded": True, **writer}
    both: Any = SimpleNamespace(**state)
    return DeletionRequests(both, both)


@each_case(
    ("query", "message"),
    [
        ({}, "exactly one of the parameters project and trace"),
        ({"project": "a", "trace": TRACE}, "exactly one of the parameters project and trace"),
        ({"project": ""}, "project is empty"),
        ({"trace": "5a"}, "expected 32 hexadecimal digits"),
        ({"trace": f"{TRACE} "}, "expected 32 hexadecimal digits"),
        ({"project": "a", "day": "2026-01-31"}, "expected eight digits"),
        ({"project": "a"}, "expected eight digits"),
    ],
)
def test_request_that_does_not_say_what_to_delete_is_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(MalformedBody, match=message):
        requests().begin(query)


@each_case(
    ("writer", "error"),
    [
        ({"embedded": False}, NotConfigured),
        ({"deletions": None}, DiskTrouble),
        ({"has_tables": False}, DiskTrouble),
    ],
)
def test_request_waits_for_the_tables_of_an_embedded_store(
    writer: dict[str, object], error: type[ReceiverError]
) -> None:
    for call in (requests(**writer).report, requests(**writer).begin):
        with pytest.raises(error):
            call({"project": "a", "day": "20260131"})
