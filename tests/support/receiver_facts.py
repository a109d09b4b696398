"""Facts about a receiver that has received nothing, and answers of its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiohttp import web

from receiver.config.load import DEFAULT_DRAIN, Loaded
from receiver.console.api.source import SourceWithSql
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.pages.receiver import OUTCOMES
from receiver.console.ui.site import Site
from receiver.dead_letters.directory import DeadLetter, DeadLetterList, entry_of
from receiver.dead_letters.replay import beginning_of
from receiver.journal.quarantine import Body
from receiver.platform.feature import TEMPLATES, pages_of
from receiver.platform.installations.platform_records import PlatformRecords, open_records
from receiver.reports import Beginning, DeadLetterEntry, LedgerLine, LedgerReport, Replayed
from receiver.settings import Platform, Settings
from receiver.writer.progress import Progress

NO_PLATFORM = Platform()


def ledger_of(*lines: LedgerLine, trouble: str = "") -> LedgerReport:
    """Return an answer of the ledger."""
    return LedgerReport("2027-01-15T08:00Z", "2027-01-14T08:00Z", "", trouble, list(lines), [])


def ledger_line(drain: str, **spans: int) -> LedgerLine:
    """Return a line of the ledger whose spans all have an outcome, unless `received` is given."""
    outcomes = {**dict.fromkeys(OUTCOMES, 0), **spans}
    outcomes.setdefault("received", sum(outcomes.values()))
    fields = {"drain": drain, "project": "prj_1", "hour": "2027-01-15T07:00Z", "difference": 0, **outcomes}
    return msgspec.convert(fields, LedgerLine)


class DeadLettersToRead:
    """Dead letters that can be read and not changed."""

    def __init__(
        self, find: Callable[[str], DeadLetter | Body], entries: Callable[[], list[DeadLetterEntry]]
    ) -> None:
        self._find = find
        self.entries = entries

    def entry(self, name: str) -> DeadLetterEntry:
        return entry_of(self._find(name))

    def beginning(self, name: str) -> Beginning:
        return beginning_of(self._find(name))

    def replay(self, name: str) -> Replayed:
        raise NotImplementedError

    def drop(self, name: str) -> None:
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class FactsOfTest(ReceiverFacts):
    """Facts with the writer's own counters and with the records of the platform, which tests change."""

    progress: Progress = field(default_factory=Progress)
    platform: PlatformRecords


def facts_of(directory: Path, pool: ThreadPoolExecutor, platform: Platform = NO_PLATFORM) -> FactsOfTest:
    """Return facts about a receiver that has received nothing."""
    settings = Settings(data_dir=str(directory), drain=(DEFAULT_DRAIN,), platform=platform)
    records = open_records(settings)
    dead_letters = DeadLetterList(directory)
    return FactsOfTest(
        loaded=Loaded(settings, {}, ()),
        health=dict,
        journal_bytes=lambda: 0,
        ledger=lambda _query: ledger_of(),
        dead_letters=DeadLettersToRead(dead_letters.find, dead_letters.entries),
        admin=lambda: None,
        pool=pool,
        platform=records,
        project_name=records.projects.name,
    )


def site_of(source_for: Callable[[web.Request], SourceWithSql], facts: FactsOfTest) -> Site:
    """Return the pages of the console and of the platform."""
    return Site(source_for, facts, pages_of(facts.platform), TEMPLATES)


def listed(entries: Sequence[DeadLetterEntry]) -> DeadLettersToRead:
    """Return dead letters of which only the list can be read."""

    def find(_name: str) -> DeadLetter:
        raise NotImplementedError

    return DeadLettersToRead(find, lambda: [*entries])
