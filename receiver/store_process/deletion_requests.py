"""Requests of operators to delete spans of the embedded store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from receiver.deletion.deletions import Deletions
from receiver.deletion.rows import DAY, Chosen, by_day
from receiver.engine.store import Store
from receiver.errors import DiskTrouble, MalformedBody, NotConfigured
from receiver.reports import DeletionBegun, DeletionReport
from receiver.store_process.writer_thread import WriterThread

TRACE_ID: Final = re.compile("[0-9a-fA-F]{32}")


class DeletionRequests:
    def __init__(self, store: Store, writer: WriterThread) -> None:
        self._store, self._writer = store, writer

    def report(self, query: Mapping[str, str], /) -> DeletionReport:
        """Count the stored spans of a project or a trace by day. Blocks."""
        deletions = self._deletions()
        return DeletionReport(by_day(self._store, _chosen(query).condition), deletions.day, deletions.trouble)

    def begin(self, query: Mapping[str, str], /) -> DeletionBegun:
        """Begin to delete the spans of a project or a trace of one day. Blocks until the writer has time."""
        deletions, chosen, day = self._deletions(), _chosen(query), query.get("day", "")
        if not DAY.fullmatch(day):
            raise MalformedBody(
                "day is missing or malformed; expected eight digits, like 20260131", field="day"
            )
        return DeletionBegun(self._writer.call_between_steps(lambda: deletions.begin(day, chosen)))

    def _deletions(self) -> Deletions:
        if not self._store.embedded:
            raise NotConfigured("the store is a server; expected its statement ALTER TABLE … DELETE")
        if self._writer.deletions is None or not self._writer.has_tables:
            raise DiskTrouble("the tables are not known to be up to date yet; `/readyz?verbose` says why")
        return self._writer.deletions


def _chosen(query: Mapping[str, str]) -> Chosen:
    project, trace = query.get("project"), query.get("trace")
    if (project is None) == (trace is None):
        raise MalformedBody("expected exactly one of the parameters project and trace", field="project")
    # In a script, an unset variable.
    if project == "":
        raise MalformedBody("project is empty; expected the id of a project", field="project")
    if trace is not None and not TRACE_ID.fullmatch(trace):
        raise MalformedBody("trace is malformed; expected 32 hexadecimal digits", field="trace")
    return Chosen(project, trace and trace.lower())
