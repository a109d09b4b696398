"""`trace-drain serve` that starts into trouble, or meets trouble that needs a receiver of its own."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from receiver.engine.clickhouse import ClickHouseStore
from tests.faults.proxy import Proxy
from tests.faults.site import Site, url_through
from tests.faults.test_tables import COLLECTORS
from tests.support import engines

DAY_S = 86_400

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def store(server_url: str) -> Iterator[ClickHouseStore]:
    """Past the proxy, in a database that nobody has made yet."""
    store = engines.connected(server_url, database=f"faults_{uuid4().hex}")
    yield store
    store.create_database()
    store.command(f"DROP DATABASE {name_of(store)}")
    store.close()


def name_of(store: ClickHouseStore) -> str:
    return store._database  # noqa: SLF001 - the test chose it


@pytest.mark.fault("ClickHouse is away when the receiver starts, for longer than the journal has room")
def test_a_receiver_that_starts_alone_takes_deliveries_up_to_its_ceiling_and_stores_them_later(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    proxy.down()
    url = url_through(proxy, server_url, name_of(store))
    with Site(tmp_path, url, store, proxy, journal_bytes_max=1 << 19) as site:
        with site.under_load():
            site.wait_until(lambda: site.answers[503], "the ceiling is not reached")
            site.wait_for_trouble("no answer")
            site.wait_until(lambda: site.metric("backlog_bytes"), "the backlog is not told")
            proxy.up()

        site.assert_kept()


@pytest.mark.fault(
    "ClickHouse is away when the receiver starts again: what became of spans is told all the while"
)
def test_a_receiver_that_starts_alone_knows_what_became_of_every_span(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    with Site(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as site:
        site.deliver(2)
        site.assert_kept()
        before = totals(site)
        site.stop()
        proxy.down()
        site.start()
        site.deliver(3)

        site.wait_until(lambda: site.metric("ledger_spans"), "the ledger is not told", patience_s=15)
        told = totals(site)
        assert told["stored"] == before["stored"] > 0
        assert told["journal"] == told["received"] - before["received"] > 0
        assert told["difference"] == 0
        assert site.metric("redelivery_window_seconds") == DAY_S
        assert site.metric("redelivery_entries") == 2
        assert site.trouble == f"schema: no answer at 127.0.0.1:{proxy.port}: connection refused"

        proxy.up()
        site.assert_kept()
        after = totals(site)
        assert (after["received"], after["journal"], after["difference"]) == (told["received"], 0, 0)


@pytest.mark.fault("DATA/ledger and DATA/redelivery are removed while ClickHouse is away since the start")
def test_what_is_taken_away_from_a_receiver_that_waits_for_its_store_is_written_anew(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    proxy.down()
    with Site(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as site:
        refused = site.run_command("dead", "replay", "some-letter")
        assert "tables are not known to be up to date yet" in refused.stdout
        for room in (tmp_path / "ledger", tmp_path / "redelivery"):
            there = partial(has_log, room)
            site.wait_until(there, f"{room.name} is not begun", patience_s=15)
            shutil.rmtree(room)
            site.wait_until(there, f"{room.name} stays away")
        proxy.up()

        site.assert_kept()


def has_log(room: Path) -> bool:
    return any(room.glob("*.log"))


@pytest.mark.fault("a Collector's `otel_traces` is in the way when the receiver starts")
def test_a_receiver_waits_until_a_collectors_table_is_renamed(
    server_url: str, proxy: Proxy, store: ClickHouseStore, tmp_path: Path
) -> None:
    store.create_database()
    store.command(COLLECTORS)
    with Site(tmp_path, url_through(proxy, server_url, name_of(store)), store, proxy) as site:
        site.deliver(3)
        site.wait_for_trouble("RENAME TABLE otel_traces TO otel_traces_before")
        site.wait_until(lambda: site.metric("store_alarms_total"), "alarms are not told")
        store.command("RENAME TABLE otel_traces TO otel_traces_before")

        site.assert_kept()


@pytest.mark.fault("the server's TLS certificate is none we trust, and is later right")
def test_a_certificate_that_is_not_trusted_holds_everything_until_it_is(
    server_url: str,
    upstream: tuple[str, int],
    store: ClickHouseStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, wrong = certificate(tmp_path, "right"), certificate(tmp_path, "wrong")
    monkeypatch.setenv("SSL_CERT_FILE", str(right))
    with Proxy(upstream, tls=context_of(wrong)) as proxy:
        url = url_through(proxy, server_url, name_of(store), scheme="https")
        with Site(tmp_path, url, store, proxy) as site:
            site.deliver(3)
            site.wait_for_trouble("CERTIFICATE_REFUSED")
            site.wait_until(lambda: site.metric("store_alarms_total"), "alarms are not told")
            proxy.tls = context_of(right)
            site.assert_kept()

            proxy.tls = context_of(wrong)
            proxy.down()
            proxy.up()
            site.deliver(3)
            site.wait_for_trouble("CERTIFICATE_REFUSED")
            proxy.tls = context_of(right)

            site.assert_kept()


def totals(site: Site) -> dict[str, int]:
    """What `trace-drain ledger` counts, all lines together."""
    answer = json.loads(site.command("ledger", "--format", "json"))
    assert not answer["trouble"]
    names = ("received", "stored", "journal", "difference")
    return {name: sum(line[name] for line in answer["lines"]) for name in names}


def certificate(directory: Path, name: str) -> Path:
    """A certificate for this machine that signs itself, with its key in the same file."""
    path, key = directory / f"{name}.pem", directory / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(path), *subject]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


def context_of(certificate: Path) -> ssl.SSLContext:
    """What a server needs to show it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
