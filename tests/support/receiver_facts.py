"""Facts about a receiver that has received nothing, and answers of its ledger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from receiver.config.load import DEFAULT_DRAIN, Loaded
from receiver.dead_letters.listing import DeadLetterList
from receiver.installations.platform_records import open_records
from receiver.query.ledger import Answer as LedgerAnswer
from receiver.query.ledger import Line
from receiver.settings import Platform, Settings
from receiver.ui.facts import ReceiverFacts
from receiver.ui.receiver import OUTCOMES
from receiver.writer.progress import Progress

NO_PLATFORM = Platform()


def ledger_of(*lines: Line, trouble: str = "") -> LedgerAnswer:
    """Return an answer of the ledger."""
    return LedgerAnswer("2027-01-15T08:00Z", "2027-01-14T08:00Z", "", trouble, list(lines), [])


def ledger_line(drain: str, **spans: int) -> Line:
    """Return a line of the ledger whose spans all have an outcome, unless `received` is given."""
    outcomes = {**dict.fromkeys(OUTCOMES, 0), **spans}
    outcomes.setdefault("received", sum(outcomes.values()))
    fields = {"drain": drain, "project": "prj_1", "hour": "2027-01-15T07:00Z", "difference": 0, **outcomes}
    return msgspec.convert(fields, Line)


def facts_of(directory: Path, pool: ThreadPoolExecutor, platform: Platform = NO_PLATFORM) -> ReceiverFacts:
    """Return facts about a receiver that has received nothing."""
    dead_letters = DeadLetterList(directory)
    settings = Settings(data_dir=str(directory), drain=(DEFAULT_DRAIN,), platform=platform)
    return ReceiverFacts(
        Loaded(settings, {}, ()),
        Progress(),
        dict,
        lambda: 0,
        lambda _query: ledger_of(),
        dead_letters.entries,
        dead_letters.find,
        lambda: None,
        pool,
        open_records(settings),
    )
