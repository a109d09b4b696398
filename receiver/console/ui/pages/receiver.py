"""Page of the receiver: the balance of all received spans, its journal, dead letters, and settings."""

from __future__ import annotations

import platform
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, NamedTuple

from msgspec import structs

from receiver import __version__, transcode
from receiver.config.keys import INDEX, Key, key_text, setting_keys
from receiver.config.load import Loaded
from receiver.config.show import DEFAULT_ORIGIN, Shown, shown
from receiver.console.ui.admin_port import AdminReport
from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.errors import ReceiverError
from receiver.refusals import RefusalReport
from receiver.reports import LedgerReport
from receiver.settings import CERTIFICATE_DAYS_MIN, Settings

PERIODS: Final = {"24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days"}
"""Periods of the ledger: age → label."""
PERIOD_DEFAULT = "24h"
OUTCOMES: Final = {
    "stored": "stored",
    "sampled_out": "sampled out",
    "rejected": "rejected",
    "duplicate": "duplicate",
    "dead": "dead letters",
    "deleted": "deleted",
    "journal": "in the journal",
}
"""Outcomes of received spans: field of a ledger line → label."""
DEAD_LETTERS_MAX = 100
DAY_S = 86_400


class Balance(NamedTuple):
    """Number of received spans, in total and by outcome."""

    received: int
    outcomes: dict[str, int]

    @property
    def unaccounted(self) -> int:
        """Return the received spans without an outcome. Any value but 0 is a bug."""
        return self.received - sum(self.outcomes.values())


class Setting(NamedTuple):
    """A setting as the page shows it. A secret is shown only as set or not set."""

    key: str
    text: str
    origin: str
    """File, environment variable or flag; `derived`: the receiver chose the value."""

    @property
    def is_default(self) -> bool:
        """Return whether no source sets the setting, so that it has its default value."""
        return self.origin == DEFAULT_ORIGIN


class Answered(NamedTuple):
    """Requests of a drain by the status of their answer, since the receiver was started."""

    drain: str
    """Name of the drain; empty if the path belongs to no drain."""
    statuses: dict[str, float]


async def build(view: View) -> Context:
    """Return the balance, the journal, the dead letters and the settings of the receiver."""
    facts = view.facts
    period = view.one_of("period", PERIODS, PERIOD_DEFAULT)
    balances, trouble = await _balances(view, period)
    admin = await facts.in_pool(facts.admin)
    dead_letters = await facts.in_pool(facts.dead_letters.entries)
    return {
        "period": period,
        "periods": PERIODS,
        "outcomes": OUTCOMES,
        "total": _sum(balances),
        "balances": balances,
        "ledger_trouble": trouble,
        "answered": _answered(admin, facts.settings) if admin else [],
        "status_name": status_name,
        "refusals": shown_refusals(facts.refusals()),
        "admin": admin,
        "problems": _problems(admin, facts.health()),
        "certificate_days": _certificate_days(admin),
        "certificate_days_min": CERTIFICATE_DAYS_MIN,
        "journal": await facts.journal(view.now_s),
        "progress": facts.progress,
        "behind_s": facts.progress.oldest_age_s(view.now_s),
        "redelivery": facts.settings.redelivery,
        "dead_letters": dead_letters[:DEAD_LETTERS_MAX],
        "dead_letter_count": len(dead_letters),
        "result": facts.results.result_of(view.query.get("result", "")).text,
        "settings": settings_of(facts.loaded),
        "versions": {
            "trace-drain": __version__,
            "core": f"{transcode.VERSION} ({transcode.BUILD_PROFILE})",
            "Python": platform.python_version(),
        },
    }


async def _balances(view: View, period: str) -> tuple[dict[str, Balance], str]:
    """Return the balance of each drain, and the problem of the ledger."""
    try:
        answer = await view.facts.in_pool(lambda: view.facts.ledger({"since": period}))
    # The rest of the page does not need the ledger, which is loaded for some time after a start.
    except ReceiverError as error:
        return {}, str(error)
    return balances_of(answer), answer.trouble


def balances_of(answer: LedgerReport) -> dict[str, Balance]:
    """Return the balance of each drain."""
    received: Counter[str] = Counter()
    outcomes: dict[str, Counter[str]] = {}
    for line in answer.lines:
        received[line.drain] += line.received
        outcomes.setdefault(line.drain, Counter()).update({name: getattr(line, name) for name in OUTCOMES})
    return {drain: Balance(received[drain], dict(outcomes[drain])) for drain in sorted(outcomes)}


def _sum(balances: dict[str, Balance]) -> Balance:
    parts = balances.values()
    return Balance(
        sum(part.received for part in parts),
        {name: sum(part.outcomes[name] for part in parts) for name in OUTCOMES},
    )


def _answered(admin: AdminReport, settings: Settings) -> list[Answered]:
    """Return the answers of every drain, and of requests whose path belongs to no drain."""
    drains = [*(drain.name for drain in settings.drain), ""]
    answered = [Answered(name, admin.by("status", "deliveries_total", drain=name)) for name in drains]
    return [row for row in answered if row.drain or row.statuses]


class ShownRefusals(NamedTuple):
    """Refused requests as pages show them."""

    newest: list[dict[str, object]]
    hours: list[dict[str, object]]


def shown_refusals(report: RefusalReport, drain: str | None = None) -> ShownRefusals:
    """Return the refusals of all drains, or of one drain and of requests that belong to no drain."""
    drains = {drain, ""}
    newest = [each for each in report.newest if drain is None or each.drain in drains]
    hours = [each for each in report.hours if drain is None or each.drain in drains]
    return ShownRefusals(
        [{**structs.asdict(each), "last": _instant(each.last_s)} for each in newest],
        [{**structs.asdict(each), "hour": _instant(each.hour_s)} for each in hours],
    )


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat()


def status_name(status: str) -> str:
    """Return a status with its name: `401 Unauthorized`."""
    return f"{status} {HTTPStatus(int(status)).phrase}" if status.isdigit() else status


def _problems(admin: AdminReport | None, health: dict[str, str]) -> list[tuple[str, str]]:
    """Return the process and the description of each problem."""
    if admin is None:
        return [("store", reason) for reason in health.values() if reason]
    return [(check.process, f"{check.name}: {check.reason}") for check in admin.checks if check.reason]


def _certificate_days(admin: AdminReport | None) -> float | None:
    """Return the days until the first certificate expires; `None` without TLS or without an answer."""
    samples = admin.samples if admin else ()
    seconds = [sample.value for sample in samples if sample.name == "certificate_expires_in_seconds"]
    return min(seconds) / DAY_S if seconds else None


def settings_of(loaded: Loaded) -> list[Setting]:
    """Return every setting with its origin. A secret is shown only as set or not set."""
    defaults = {key.path: key.default for key in setting_keys()}
    return [
        Setting(key_text(line.key), _text(line.value), _origin(line, defaults[_pattern(line.key)]))
        for line in shown(loaded)
    ]


def _origin(line: Shown, default: object) -> str:
    # Bound ports, the generated certificate and the default drain have no source.
    is_derived = line.origin == DEFAULT_ORIGIN and not _is_same(line.value, default)
    return "derived" if is_derived else line.origin


def _is_same(value: object, default: object) -> bool:
    # The listing converts tuples to lists.
    return value == (list(default) if isinstance(default, tuple) else default)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "(none)"
    return "(not set)" if value is None or value == "" else str(value)


def _pattern(key: Key) -> tuple[str, ...]:
    return tuple(INDEX if isinstance(part, int) else part for part in key)
