"""Page of the receiver, and its state in the frame of every page."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import current_thread

import pytest

from receiver.config.load import Loaded
from receiver.console.ui.admin_port import AdminReport, Check, Sample
from receiver.console.ui.pages.receiver import settings_of
from receiver.errors import DiskTrouble
from receiver.model import SegmentId
from receiver.reports import DeadDelivery, DeadLetterEntry
from receiver.settings import Drain, Journal, Settings, Store
from tests.console.ui.conftest import HOSTILE, Client
from tests.console.ui.test_pages import page_of
from tests.support.cases import each_case
from tests.support.receiver_facts import FactsOfTest, ledger_line, ledger_of, listed

NOW_S = 1_800_000_000.0


def dead_letter() -> DeadLetterEntry:
    return DeadLetterEntry(
        id="00000000000000a1-7",
        cause="refused",
        rows=3,
        bytes=4_096,
        at="2027-01-15T07:00:00+00:00",
        text=HOSTILE[0],
        deliveries=(DeadDelivery(HOSTILE[1], (), 3, "d"),),
        path="dead/x",
    )


def store_is_unavailable(facts: FactsOfTest) -> None:
    segments_wait(facts)
    facts.health = lambda: {"store": "retry: NETWORK_ERROR (210)", "clock": ""}


def journal_is_full(facts: FactsOfTest) -> None:
    store_is_unavailable(facts)
    facts.journal_bytes = lambda: facts.settings.journal.bytes_max


def window_is_short(facts: FactsOfTest) -> None:
    facts.health = lambda: {"store": "", "redelivery": "shorter than configured"}


def segments_wait(facts: FactsOfTest) -> None:
    facts.progress.oldest_since_s = NOW_S - 40


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda _facts: None, "ok"),
        (segments_wait, "behind 40 s"),
        (window_is_short, "needs attention"),
        (store_is_unavailable, "store unavailable"),
        (journal_is_full, "journal 100 % full"),
    ],
)
async def test_state_is_the_most_urgent_problem(
    facts: FactsOfTest, change: Callable[[FactsOfTest], None], text: str
) -> None:
    change(facts)

    assert (await facts.state(NOW_S)).text == text


async def test_every_page_shows_the_state_of_the_receiver(site: Client, facts: FactsOfTest) -> None:
    store_is_unavailable(facts)

    page = await page_of(site, "/errors")

    assert ("span", {"class": "state error"}) in page.elements
    assert "store unavailable" in page.text


async def test_journal_is_measured_once_per_page_and_not_on_the_event_loop(
    site: Client, facts: FactsOfTest
) -> None:
    threads: list[str] = []

    def journal_bytes() -> int:
        threads.append(current_thread().name)
        return 0

    facts.journal_bytes = journal_bytes

    await page_of(site, "/errors")

    assert len(threads) == 1, "once for a page"
    assert threads != [current_thread().name]


async def test_journal_is_full_when_arriving_bytes_have_filled_its_remaining_space(
    facts: FactsOfTest,
) -> None:
    journal = Journal(bytes_max=1_000_000, disk_free_min=1)
    facts.loaded = Loaded(Settings(data_dir=facts.settings.data_dir, journal=journal), {}, ())
    facts.journal_bytes = lambda: 600_000
    facts.progress.oldest_since_s, facts.progress.backlog_bytes = NOW_S - 60, 600_000

    room = await facts.journal(NOW_S)

    assert room.room_bytes == 400_000
    assert room.full_in_s == pytest.approx(40)
    assert room.used_share == pytest.approx(0.6)


async def test_ledger_is_shown_as_one_sum_over_all_drains(site: Client, facts: FactsOfTest) -> None:
    facts.ledger = lambda _query: ledger_of(
        ledger_line("a", stored=1_000, duplicate=200), ledger_line("b", stored=30, journal=4)
    )

    page = await page_of(site, "/receiver")

    assert "every received span has an outcome" in page.text
    assert "all drains 1,234 = 1,030 + 0 + 0 + 200 + 0 + 0 + 4 0" in page.words


@each_case(
    ("dead", "files", "verdict"),
    [
        (0, 0, "✓ Nothing is missing: every received span has an outcome."),
        (12, 1, "▲ 12 spans cannot be read: they are dead letters."),
        (1, 1, "▲ 1 span cannot be read: it is a dead letter."),
        (12, 0, "▲ 12 spans cannot be read: the dead letters that held them are dropped."),
        (0, 1, "▲ 1 dead letter waits to be replayed or dropped: the spans in it cannot be read."),
        (0, 2, "▲ 2 dead letters wait to be replayed or dropped: the spans in them cannot be read."),
    ],
)
async def test_verdict_counts_the_spans_that_cannot_be_read(
    site: Client, facts: FactsOfTest, dead: int, files: int, verdict: str
) -> None:
    facts.ledger = lambda _query: ledger_of(ledger_line("a", stored=1_000, dead=dead))
    facts.dead_letters = listed([dead_letter()] * files)

    page = await page_of(site, "/receiver")

    assert verdict in page.words
    assert ("Nothing is missing" in page.text) == (not dead and not files)
    assert ("#dead" in page.links) == bool(dead or files)


async def test_span_without_an_outcome_is_an_alarm(site: Client, facts: FactsOfTest) -> None:
    facts.ledger = lambda _query: ledger_of(ledger_line("a", received=12, stored=10))

    page = await page_of(site, "/receiver")

    assert "2 received spans have no outcome" in page.text
    assert "every received span has an outcome" not in page.text


async def test_page_is_shown_while_the_ledger_is_being_read(site: Client, facts: FactsOfTest) -> None:
    def is_read(_query: object) -> None:
        raise DiskTrouble("ledger is still being read; retry in a few seconds")

    facts.ledger = is_read  # type: ignore[assignment]  # it never returns

    page = await page_of(site, "/receiver")

    assert "ledger is still being read" in page.text
    assert "Journal and backlog" in page.text


async def test_url_selects_the_period_of_the_ledger(site: Client, facts: FactsOfTest) -> None:
    periods: list[str] = []
    facts.ledger = lambda query: periods.append(query["since"]) or ledger_of()  # type: ignore[func-returns-value]

    statuses = [(await site.get(f"/receiver{period}")).status for period in ("", "?period=7d", "?period=8d")]

    assert (statuses, periods) == ([200, 200, 400], ["24h", "7d"])


async def test_answers_failed_checks_and_certificate_come_from_the_admin_port(
    site: Client, facts: FactsOfTest
) -> None:
    facts.admin = lambda: AdminReport(
        (
            Sample("deliveries_total", {"drain": "default", "status": "200"}, 1_200),
            Sample("deliveries_total", {"drain": "default", "status": "401"}, 3),
            Sample("deliveries_total", {"drain": "", "status": "404"}, 7),
            Sample("refused_requests_past_hour", {"drain": ""}, 6),
            Sample("certificate_expires_in_seconds", {"process": "intake-0"}, 86_400 * 30),
            Sample("certificate_expires_in_seconds", {"process": "intake-1"}, 86_400 * 3),
        ),
        (Check("intake-1", "process", "not running"), Check("store", "store", "")),
    )

    page = await page_of(site, "/receiver")

    assert re.search(r"7 × 404 Not Found\s+0\s+6\s+–\s+–", page.text)
    for text in (
        "1,200 × 200 OK",
        "3 × 401 Unauthorized",
        "7 × 404 Not Found",
        "expires in 3.0 days: renew it",
        "process: not running",
    ):
        assert text in page.text


async def test_dead_letters_are_listed_with_reason_and_actions(site: Client, facts: FactsOfTest) -> None:
    facts.dead_letters = listed([dead_letter()])

    page = await page_of(site, "/receiver")

    assert HOSTILE[0] in page.text
    assert HOSTILE[1] in page.text
    path = "/receiver/dead/00000000000000a1-7"
    assert {path, f"{path}?confirm=drop"} <= set(page.links)
    assert ("form", {"method": "post", "action": f"{path}/replay", "class": "actions"}) in page.elements


async def test_settings_are_shown_with_origins_and_without_secrets(site: Client, facts: FactsOfTest) -> None:
    settings = Settings(
        data_dir=facts.settings.data_dir,
        api_token="HIDDEN-1",
        store=Store(password="HIDDEN-2", retention_days=7),
        drain=(Drain(name="shop", tokens=("HIDDEN-3",), signature_secrets=("HIDDEN-4",)),),
    )
    origins = {
        "data_dir": "flag --data",
        "api_token": "environment TRACE_DRAIN_API_TOKEN",
        "store.password": "file /etc/trace-drain.toml",
        "store.retention_days": "file /etc/trace-drain.toml",
        "store.rollup": "file /etc/trace-drain.toml",
        "drain[0].tokens": "file /etc/trace-drain.toml",
    }
    facts.loaded = Loaded(settings, origins, ())

    page = await page_of(site, "/receiver")

    text = page.words
    assert "HIDDEN" not in text
    assert "api_token (set) environment TRACE_DRAIN_API_TOKEN" in text
    assert "store.retention_days 7 file /etc/trace-drain.toml" in text
    origin_of = {setting.key: setting.origin for setting in settings_of(facts.loaded)}
    derived = {"drain[0].name": "derived", "drain[0].signature_secrets": "derived"}
    assert {key: origin for key, origin in origin_of.items() if origin != "default"} == origins | derived


async def test_segments_that_make_no_progress_need_attention(facts: FactsOfTest) -> None:
    facts.progress.stalled[SegmentId(1, 2)] = "refused"
    facts.health = lambda: {"writer": facts.progress.stall_reason}

    assert (await facts.state(NOW_S)).text == "needs attention"
