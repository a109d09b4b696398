"""Page that connects a drain: the settings of the sender, and the check list."""

from __future__ import annotations

import ast
import asyncio
import subprocess
from collections.abc import Mapping

from receiver.config.load import Loaded
from receiver.console.api.source import Answer
from receiver.console.ui.admin_port import AdminReport, Sample
from receiver.console.ui.facts import ReceiverFacts
from receiver.console.ui.pages.connect import endpoint_url
from receiver.console.ui.pages.connect_checks import Evidence, checks_of, verdict
from receiver.errors import DiskTrouble, StoreTrouble
from receiver.reports import LedgerReport
from receiver.settings import Drain, Settings, Tls
from tests.console.ui.conftest import Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, page_of
from tests.support.cases import each_case
from tests.support.receiver_facts import ledger_line, ledger_of

TOKEN_DRAIN = Drain(name="shop", tokens=("secret-1",))
SIGNED_DRAIN = Drain(
    name="platform", path="/p", signature_header="x-signature", signature_secrets=("secret-2",)
)
NEWEST = {"received_ms": 1_800_000_000_000, "service": "web", "name": "GET /", "project": "prj_1"}
STORED = {"received": 5, "stored": 5}
FAILURES = [
    ("Reached", Evidence(elsewhere=3), "3 requests had a path of no drain"),
    ("Signature and token accepted", Evidence({"401": 2}), "Let the sender set authorization"),
    ("Signature and token accepted", Evidence({"403": 1}), "the same secret"),
    ("Decoded", Evidence({"400": 1}), "not OTLP traces"),
    ("Decoded", Evidence({"415": 1}), "content type"),
    ("Decoded", Evidence({"413": 1}), "larger than 64 MiB"),
    ("Decoded", Evidence({"503": 1}), "journal full"),
    ("Project found", Evidence({"200": 1}, accepted=5, unresolved=5, spans=STORED), "platform.projectId"),
    ("Stored", Evidence({"200": 1}, accepted=5, spans={"received": 5, "dead": 5}), "dead letters"),
    ("Stored", Evidence({"200": 1}, accepted=5, spans={"received": 5, "sampled_out": 5}), "[sampling]"),
    ("Stored", Evidence({"200": 1}, accepted=5, store_trouble="retry: X (1)"), "in the journal meanwhile"),
    ("Readable", Evidence({"200": 1}, accepted=5, spans=STORED, store_trouble="X (1)"), "does not answer"),
]


@each_case(("name", "evidence", "text"), FAILURES)
def test_first_failing_step_names_its_cause_and_fix(name: str, evidence: Evidence, text: str) -> None:
    step = verdict(checks_of(Settings(), TOKEN_DRAIN, evidence))

    assert (step.name, step.state) == (name, "failed")
    assert text in step.text


def test_without_a_delivery_every_step_waits() -> None:
    checks = checks_of(Settings(), TOKEN_DRAIN, Evidence())

    assert {check.state for check in checks} == {"waiting"}
    assert "No request has arrived" in verdict(checks).text


def test_stored_span_proves_every_step_after_a_restart() -> None:
    checks = checks_of(Settings(), TOKEN_DRAIN, Evidence(spans=STORED, newest=NEWEST))

    assert {check.state for check in checks} == {"done"}
    assert verdict(checks).text == "The drain is connected."


def test_refused_requests_of_other_clients_do_not_hide_accepted_deliveries() -> None:
    evidence = Evidence({"200": 5, "401": 90, "400": 1}, accepted=5, spans=STORED, newest=NEWEST)

    assert verdict(checks_of(Settings(), TOKEN_DRAIN, evidence)).state == "done"


@each_case(
    ("settings", "url"),
    [
        (Settings(listen="127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces"),
        (Settings(listen="0.0.0.0:4318", tls=Tls(cert_file="c")), "https://HOST:4318/v1/traces"),
        (Settings(listen="[::]:4318", behind_proxy=True), "https://HOST/v1/traces"),
    ],
)
def test_endpoint_has_a_placeholder_where_only_the_operator_knows_the_name(
    settings: Settings, url: str
) -> None:
    assert endpoint_url(settings, TOKEN_DRAIN) == url


class StoredSource(FakeSource):
    """Source with one span."""

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        await super().ask(name, query)
        return Answer([NEWEST])


def with_drains(facts: ReceiverFacts, *drains: Drain) -> None:
    facts.loaded = Loaded(Settings(data_dir=facts.settings.data_dir, drain=drains), {}, ())


async def test_check_list_is_done_after_the_first_delivery(
    start_site: StartSite, facts: ReceiverFacts
) -> None:
    with_drains(facts, TOKEN_DRAIN, SIGNED_DRAIN)
    source = StoredSource()
    client = await start_site(source)

    before = await (await client.get("/connect/checks?drain=platform")).json()
    assert source.queries == []
    facts.ledger = lambda query: ledger_of(ledger_line(query["drain"], stored=5))
    facts.admin = lambda: AdminReport(
        (Sample("deliveries_total", {"drain": "platform", "status": "200"}, 1),)
    )
    after = await (await client.get("/connect/checks?drain=platform")).json()

    assert before["verdict"]["state"] == "waiting"
    assert [check["state"] for check in after["checks"]] == ["done"] * 6
    assert after["checks"][1]["text"] == "Checked: signature."
    assert "web GET /, received" in after["checks"][5]["text"]


async def test_ledger_that_is_still_being_read_fails_no_step(
    start_site: StartSite, facts: ReceiverFacts
) -> None:
    def unread(_query: Mapping[str, str]) -> LedgerReport:
        raise DiskTrouble("ledger is still being read")

    facts.ledger = unread
    client = await start_site(FakeSource())

    checks = await (await client.get("/connect/checks")).json()

    assert {check["state"] for check in checks["checks"]} == {"waiting"}
    assert checks["checks"][4]["text"] == "Stored spans are not counted: ledger is still being read."


async def test_unavailable_store_fails_the_last_step_and_not_the_page(
    start_site: StartSite, facts: ReceiverFacts
) -> None:
    facts.ledger = lambda _query: ledger_of(ledger_line("default", stored=5))
    client = await start_site(FakeSource(error=StoreTrouble("of a row", code=210, name="NETWORK_ERROR")))

    answer = await client.get("/connect")

    assert answer.status == 200
    assert "The store does not answer: NETWORK_ERROR (210)." in Document(await answer.text()).text


@each_case("drain", ["", "shop", "platform"])
async def test_page_shows_header_names_and_no_secret(
    start_site: StartSite, facts: ReceiverFacts, drain: str
) -> None:
    with_drains(facts, TOKEN_DRAIN, SIGNED_DRAIN)
    client = await start_site(FakeSource())

    page = Document(await (await client.get("/connect", params={"drain": drain})).text())

    assert "secret-" not in page.text
    header = "x-signature" if drain == "platform" else "authorization: Bearer TOKEN"
    assert header in page.text
    assert "/p" in page.text if drain == "platform" else "/v1/traces" in page.text


def snippet(page: Document, first_word: str) -> str:
    begin = page.text.index(first_word)
    return page.text[begin : page.text.index("\n\n\n", begin)]


async def test_python_program_and_curl_command_are_valid(start_site: StartSite, facts: ReceiverFacts) -> None:
    with_drains(facts, TOKEN_DRAIN)
    client = await start_site(FakeSource())

    page = Document(await (await client.get("/connect")).text())

    python, curl = snippet(page, "import os\n"), snippet(page, "BODY='")
    assert '"Bearer " + os.environ["TOKEN"]' in python
    ast.parse(python)
    await asyncio.to_thread(subprocess.run, ["/bin/sh", "-n", "-c", curl], check=True)
    assert '-H "authorization: Bearer $TOKEN"' in curl


async def test_start_page_explains_how_to_connect_a_drain_until_the_first_span(start_site: StartSite) -> None:
    client = await start_site(FakeSource())

    page = Document(await (await client.get("/")).text())

    assert "No span is stored yet." in page.text
    assert "What to enter at the sender" in page.text


async def test_start_page_with_older_spans_does_not_explain_how_to_connect_a_drain(site: Client) -> None:
    answer = await site.get("/?since=1m")

    page = Document(await answer.text())
    assert "No requests from" in page.text
    assert "What to enter at the sender" not in page.text


async def test_connect_page_has_a_link_that_checks_again(site: Client) -> None:
    page = await page_of(site, "/connect")

    assert "/connect?drain=default" in page.links
